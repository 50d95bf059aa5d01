"""A wire between two network namespaces on which each frame takes some time, both ways, at any rate.

    wire.py NAMESPACE NAMESPACE INTERFACE SECONDS

Makes INTERFACE in both, without an address and down, prints a line, and carries frames until it ends, and both
interfaces with it. For kernels without netem: takes root and /dev/net/tun.
"""

import collections
import ctypes
import fcntl
import os
import select
import struct
import sys
import time

TUN = '/dev/net/tun'
TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454ca, 0x0002, 0x1000, 0x40000000
LARGEST = 65_549  # bytes of a frame: the largest MTU, and Ethernet's header
WAITING = 20_000  # frames on one way; who sends more loses them, as on any wire


def tap(namespace, name):
    """A descriptor of a new interface, whose frames it reads and writes."""
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open(f'/run/netns/{namespace}', os.O_RDONLY)
    if libc.setns(own, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f'setns {namespace}')
    os.close(own)
    end = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack('16sH22x', name.encode(), IFF_TAP | IFF_NO_PI))
    return end


def carry(ends, seconds):
    """Does not return."""
    other = dict(zip(ends, reversed(ends)))
    under_way = {end: collections.deque() for end in ends}  # (when it is there, frame), by the end that it came from
    while True:
        first = min((frames[0][0] for frames in under_way.values() if frames), default=None)
        # select waits by the microsecond, poll by the millisecond.
        ready, _, _ = select.select(ends, [], [], None if first is None else max(0.0, first - time.monotonic()))
        for end in ready:
            try:
                while True:
                    frame = os.read(end, LARGEST)
                    if len(under_way[end]) < WAITING:
                        under_way[end].append((time.monotonic() + seconds, frame))
            except BlockingIOError:
                pass
        now = time.monotonic()
        for end, frames in under_way.items():
            while frames and frames[0][0] <= now:
                try:
                    os.write(other[end], frames.popleft()[1])
                except OSError:
                    pass  # that interface is down, or takes no more: the frame is lost


if __name__ == '__main__':
    ends = [tap(namespace, sys.argv[3]) for namespace in sys.argv[1:3]]
    print('carries', flush=True)
    carry(ends, float(sys.argv[4]))
