"""One of three daemons is on another host, and the network between them fails.

That host is a network namespace, so this takes root. Skipped where it cannot be had.
"""

import sys
import threading
import time

import attack
import fleet
import grpc
from routing_test import AFFINITIES, FleetTest
from spaid.v1 import arrays_pb2, matrix_pb2, matrix_pb2_grpc

AFFINITIES = AFFINITIES[:200]
# Seconds until a call to a daemon that is cut off has ended: deploy/fleet/haproxy.cfg says 11, and clients give up on a
# connection that does not acknowledge what they send after 20.
LIMIT_OF_PROXY, LIMIT_OF_CLIENTS = 15, 30


class Partition(FleetTest):

    def far(self):
        """A daemon on a host of its own."""
        self.host = fleet.Host()
        self.addCleanup(self.host.close)
        daemon = self.start('--threads=1', f'--address={self.host.address}:0', f'--ops-address={self.host.address}:0',
                            '--insecure', within=self.host.within)
        self.addCleanup(self.host.mend)  # the daemon ends when its calls have
        return daemon

    def stuck(self, proxy, affinity):
        """Begins a call in which both sides wait; returns what waits for its end, and tells it."""
        channel = attack.channel(proxy)
        self.addCleanup(channel.close)
        over = threading.Event()
        self.addCleanup(over.set)

        def requests():
            header = matrix_pb2.MatrixHeader(n=1, nnz=1, layout=arrays_pb2.LAYOUT_CSC, pattern_only=True)
            yield matrix_pb2.UploadMatrixRequest(header=header)
            over.wait()

        call = matrix_pb2_grpc.MatrixServiceStub(channel).UploadMatrix(
            requests(), timeout=300, metadata=(('x-spaid-affinity', affinity),))

        def ended():
            with self.assertRaises(grpc.RpcError) as caught:
                list(call)
            return caught.exception.code()

        return ended

    def test_one_is_cut_off_and_comes_back(self):
        daemons = [self.start('--threads=1'), self.far(), self.start('--threads=1')]
        proxy = self.before(fleet.HaProxy, daemons)
        before = fleet.places(proxy, daemons, AFFINITIES)
        its = [a for a in AFFINITIES if before[a] == 1]
        self.assertGreater(len(its), 20)
        ended = self.stuck(proxy, its[0])
        daemons[1].wait(lambda: daemons[1].metric('spaid_rpcs_live', method='MatrixService/UploadMatrix') == 1, 'has the call')
        flags = ('--time-steps=6', '--concurrency=2', '--duration=4', '--retries=30')
        loads = {'HAProxy': self.load(proxy.address, *flags),
                 'clients that know all': self.load(','.join(one.address for one in daemons), *flags)}
        daemons[1].wait(lambda: all((one.metric('spaid_solves_total') or 0) > 4 for one in daemons), 'has work like the rest', 30)

        self.host.cut()
        cut = time.monotonic()
        daemons[0].wait(lambda: proxy.state(1) == 'DOWN', 'has a proxy that has seen it', 30)
        print(f'its checks have failed after {time.monotonic() - cut:.1f} s', flush=True)
        after = fleet.places(proxy, daemons, AFFINITIES, without=daemons[1])
        self.assertEqual([a for a in AFFINITIES if after[a] != before[a]], its, 'its patterns move, and no others')
        code = ended()
        print(f'a call that waited ended with {code.name} after {time.monotonic() - cut:.1f} s', flush=True)
        self.assertLess(time.monotonic() - cut, LIMIT_OF_PROXY * attack.busy())
        for name, load in loads.items():
            status, report = load.report()
            print(f'{name}: {report["succeeded"]} jobs, {report["refused"]} calls came back; the last ended '
                  f'{time.monotonic() - cut:.1f} s after the cut', flush=True)
            self.assertEqual((status, report['failed'], report['errors']), (0, 0, {}), name)
            self.assertLess(time.monotonic() - cut, LIMIT_OF_CLIENTS * attack.busy())

        self.host.mend()
        daemons[0].wait(lambda: proxy.state(1) == 'UP', 'has a proxy that has seen it back', 30)
        self.assertEqual(fleet.places(proxy, daemons, AFFINITIES), before, 'all are where they were')


if __name__ == '__main__':
    why = fleet.Host.missing()
    if why:
        print(f'skipped: {why}')
        sys.exit(77)
    attack.main()
