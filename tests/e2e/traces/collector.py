"""A collector of spans: what an OpenTelemetry collector is to the daemon, by python3-grpcio.

    with collector.Collector() as taken:         # taken.endpoint
        ... taken.wait(lambda: taken.named('solve'), daemon)
"""

import concurrent.futures
import threading

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans. `hold`: it answers nobody until `release`."""

    def __init__(self, hold=False, reject=0, port=0):
        self.spans, self.resources = [], []
        self._reject = reject
        self._go = threading.Event()
        if not hold:
            self._go.set()
        self._lock = threading.Lock()
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f'127.0.0.1:{port}')
        self.endpoint = f'http://127.0.0.1:{self.port}'
        self._server.start()

    def Export(self, request, context):  # noqa: N802
        self._go.wait(60)
        with self._lock:
            for resource in request.resource_spans:
                self.resources.append({one.key: one.value.string_value for one in resource.resource.attributes})
                for scope in resource.scope_spans:
                    self.spans += scope.spans
        partial = trace_service_pb2.ExportTracePartialSuccess(rejected_spans=self._reject)
        return trace_service_pb2.ExportTraceServiceResponse(partial_success=partial)

    def release(self):
        self._go.set()

    def named(self, name):
        with self._lock:
            return [span for span in self.spans if span.name == name]

    def wait(self, true, daemon):
        """Until `true()`; the daemon sends what waits every five seconds."""
        daemon.wait(true, 'has sent its spans', 30)

    def close(self):
        self._go.set()
        self._server.stop(None).wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def attributes(span):
    """Its attributes as a dict."""
    return {one.key: getattr(one.value, one.value.WhichOneof('value')) for one in span.attributes}


def children(spans, parent):
    return [span for span in spans if span.parent_span_id == parent.span_id and span.trace_id == parent.trace_id]
