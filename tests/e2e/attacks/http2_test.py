"""The tools themselves: a call by hand is answered, and counted."""

import attack
import http2
from spaid.v1 import server_pb2


class Http2(attack.TestCase):
    def test_a_call_by_hand_is_answered(self):
        daemon = self.start()
        with http2.Connection(daemon.port) as connection:
            stream = connection.open('/spaid.v1.ServerService/GetServerInfo')
            connection.data(stream, http2.message(b''), end=True)

            def answer():
                return b''.join(payload for kind, on, payload in connection.events
                                if kind == http2.DATA and on == stream)
            connection.read(10, until=lambda: len(answer()) > 5)
        info = server_pb2.GetServerInfoResponse.FromString(answer()[5:])
        self.assertEqual(info.version, attack.ask(daemon).version)
        self.assertEqual(daemon.metric('spaid_rpcs_ended_total', method='ServerService/GetServerInfo'), 2)
        self.assertGreater(daemon.memory(peak=True), 1)

    def test_a_refusal_has_its_reason(self):
        daemon = self.start()
        with attack.Bystander(daemon) as client:
            self.assert_refused(lambda: self.get_nothing(daemon), attack.grpc.StatusCode.NOT_FOUND,
                                'HANDLE_UNKNOWN')
        self.assertEqual(client.errors, [])

    @staticmethod
    def get_nothing(daemon):
        from spaid.v1 import job_pb2, job_pb2_grpc
        with attack.channel(daemon) as ch:
            job_pb2_grpc.JobServiceStub(ch).GetJob(job_pb2.GetJobRequest(name='jobs/none'), timeout=10)


if __name__ == '__main__':
    attack.main()
