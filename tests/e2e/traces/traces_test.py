"""Traces of a real daemon: whose spans they are, what a collector gets, and what happens without one."""

import json
import os
import re
import socket
import subprocess

import attack
import collector
import grpc
from google_rpc import error_details_pb2, status_pb2
from spaid.v1 import job_pb2, job_pb2_grpc, matrix_pb2, matrix_pb2_grpc

TRACE, SPAN = '4bf92f3577b34da6a3ce929d0e0e4736', '00f067aa0ba902b7'
PARENT = f'00-{TRACE}-{SPAN}-01'


def nowhere():
    """An endpoint that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return f'http://127.0.0.1:{probe.getsockname()[1]}'


class Traces(attack.TestCase):

    def collector(self, **options):
        made = collector.Collector(**options)
        self.addCleanup(made.close)
        return made

    def spaidctl(self, daemon, *arguments, **trace):
        environment = {name: value for name, value in os.environ.items() if name not in ('TRACEPARENT', 'TRACESTATE')}
        environment.update((name.upper(), value) for name, value in trace.items())
        done = subprocess.run([os.environ['SPAIDCTL'], *arguments, f'--address={daemon.address}', '--json'],
                              capture_output=True, text=True, check=False, timeout=60, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_the_tree_of_a_solve(self):
        taken = self.collector()
        daemon = self.start(f'--otlp-endpoint={taken.endpoint}', '--log-level=debug')
        self.spaidctl(daemon, 'solve', 'gallery:poisson:40', '--engine=static-spai', '--out=/dev/null',
                      traceparent=PARENT, tracestate='vendor=1')
        taken.wait(lambda: taken.named('spaid.v1.SolverService/Solve'), daemon)
        calls = {span.name: span for span in taken.spans if span.name.startswith('spaid.v1.')}
        self.assertEqual(set(calls), {'spaid.v1.MatrixService/UploadMatrix', 'spaid.v1.SolverService/Solve'})
        for call in calls.values():
            self.assertEqual((call.trace_id.hex(), call.parent_span_id.hex(), call.trace_state), (TRACE, SPAN, 'vendor=1'))
            self.assertEqual(call.kind, call.SPAN_KIND_SERVER)
            self.assertEqual(call.status.code, call.status.STATUS_CODE_UNSET)
            self.assertEqual(collector.attributes(call)['rpc.system'], 'grpc')
            self.assertEqual(collector.attributes(call)['rpc.grpc.status_code'], 0)
        upload = collector.children(taken.spans, calls['spaid.v1.MatrixService/UploadMatrix'])
        self.assertEqual([span.name for span in upload], ['upload'])
        solve = calls['spaid.v1.SolverService/Solve']
        of_solve = {span.name: span for span in collector.children(taken.spans, solve)}
        self.assertEqual(set(of_solve), {'upload', 'queue', 'plan', 'build', 'solve', 'download'})
        for span in of_solve.values():
            self.assertEqual(span.kind, span.SPAN_KIND_INTERNAL)
        # In their order, each inside its parent.
        for span in [*upload, *of_solve.values()]:
            parent = next(one for one in calls.values() if one.span_id == span.parent_span_id)
            self.assertLessEqual(parent.start_time_unix_nano, span.start_time_unix_nano + 1000000, span.name)
            self.assertLessEqual(span.start_time_unix_nano, span.end_time_unix_nano, span.name)
            self.assertLessEqual(span.end_time_unix_nano, parent.end_time_unix_nano + 1000000, span.name)
        # Some residuals, the last with which it converged; of the others none.
        residuals = [collector.attributes(event) for event in of_solve['solve'].events]
        self.assertTrue(2 <= len(residuals) <= 16, residuals)
        iterations = [one['spaid.iteration'] for one in residuals]
        self.assertEqual(iterations, sorted(iterations))
        self.assertLessEqual(residuals[-1]['spaid.relative_residual'], 1e-8)
        for event in of_solve['solve'].events:
            self.assertEqual(event.name, 'residual')
            self.assertTrue(of_solve['solve'].start_time_unix_nano <= event.time_unix_nano
                            <= of_solve['solve'].end_time_unix_nano)
        self.assertFalse([span for span in taken.spans if span.events and span is not of_solve['solve']])
        order = [of_solve[name] for name in ('queue', 'plan', 'build', 'solve')]
        for before, after in zip(order, order[1:]):
            self.assertLessEqual(before.end_time_unix_nano, after.start_time_unix_nano)
        self.assertEqual(len({span.span_id for span in taken.spans}), len(taken.spans))
        # The job, its lines and its answer tell the trace.
        job = collector.attributes(solve)['spaid.job']
        with attack.channel(daemon) as channel:
            shown = job_pb2_grpc.JobServiceStub(channel).GetJob(job_pb2.GetJobRequest(name=job), timeout=10).job
        self.assertEqual(shown.trace_id, TRACE)
        daemon.wait(lambda: daemon.metric('spaid_spans_exported_total') >= len(taken.spans), 'counts them')
        for event in ('job_ended', 'matrix_stored', 'rpc'):
            self.assertRegex(daemon.text(), rf'{event} .*trace_id={TRACE}')
        resource = taken.resources[0]
        self.assertEqual(resource['service.name'], 'spaid')
        self.assertRegex(resource['service.version'], r'^\d+\.\d+\.\d+$')

    def test_errors_name_their_trace(self):
        taken = self.collector()
        daemon = self.start(f'--otlp-endpoint={taken.endpoint}')
        with attack.channel(daemon) as channel:
            stub = matrix_pb2_grpc.MatrixServiceStub(channel)
            with self.assertRaises(grpc.RpcError) as caught:
                stub.GetMatrix(matrix_pb2.GetMatrixRequest(name='matrices/none'), timeout=10,
                               metadata=(('traceparent', PARENT), ('tracestate', 'vendor=1')))
        details = dict(caught.exception.trailing_metadata())['grpc-status-details-bin']
        info = error_details_pb2.ErrorInfo.FromString(status_pb2.Status.FromString(details).details[0].value)
        self.assertEqual(info.metadata['trace_id'], TRACE)
        taken.wait(lambda: taken.spans, daemon)
        (span,) = taken.spans
        self.assertEqual(span.status.code, span.status.STATUS_CODE_ERROR)
        self.assertIn('matrices/none', span.status.message)
        self.assertEqual(collector.attributes(span)['error.type'], 'HANDLE_UNKNOWN')
        self.assertEqual(span.trace_state, 'vendor=1')

    def test_what_is_sampled(self):
        taken = self.collector()
        daemon = self.start(f'--otlp-endpoint={taken.endpoint}')
        with attack.channel(daemon) as channel:
            stub = matrix_pb2_grpc.MatrixServiceStub(channel)

            def listed(*metadata):
                stub.ListMatrices(matrix_pb2.ListMatricesRequest(), timeout=10, metadata=metadata)

            listed(('traceparent', PARENT[:-1] + '0'))  # its caller has decided against it
            listed(('traceparent', PARENT))
            listed()  # a trace of its own
            listed(('traceparent', 'nonsense'))  # as the W3C wants it
            listed(('traceparent', PARENT), ('traceparent', PARENT))
        taken.wait(lambda: len(taken.spans) >= 4, daemon)
        self.assertEqual(len(taken.spans), 4)
        self.assertEqual([span.trace_id.hex() == TRACE for span in taken.spans], [True, False, False, False])
        self.assertEqual([span.parent_span_id.hex() for span in taken.spans], [SPAN, '', '', ''])

    def test_without_a_collector_ids_are_followed_all_the_same(self):
        daemon = self.start()
        self.spaidctl(daemon, 'solve', 'gallery:poisson:8', '--engine=jacobi', traceparent=PARENT)
        self.assertRegex(daemon.text(), rf'job_ended .*trace_id={TRACE}')
        (job,) = self.spaidctl(daemon, 'jobs')['jobs']
        self.assertEqual(job['trace_id'], TRACE)
        self.spaidctl(daemon, 'solve', 'gallery:poisson:9', '--engine=jacobi')
        self.assertEqual(daemon.text().count('trace_id='), len(re.findall(f'trace_id={TRACE}', daemon.text())))

    def test_a_collector_that_is_absent_or_slow_holds_up_nobody(self):
        slow = self.collector(hold=True)
        for endpoint in (nowhere(), slow.endpoint):
            daemon = self.start(f'--otlp-endpoint={endpoint}')
            with attack.channel(daemon) as channel:
                stub = matrix_pb2_grpc.MatrixServiceStub(channel)
                for _ in range(6000):  # more than may wait
                    stub.ListMatrices(matrix_pb2.ListMatricesRequest(), timeout=10)
            full = daemon.metric('spaid_spans_dropped_total', reason='queue_full')
            lost = daemon.metric('spaid_spans_dropped_total', reason='not_exported')
            print(f'{endpoint}: {full:.0f} found the queue full, {lost:.0f} were not exported', flush=True)
            self.assertGreater(full + lost, 0)
            self.assertEqual(daemon.stop(), 0)
        slow.release()

    def test_what_the_collector_refuses_is_counted(self):
        taken = self.collector(reject=1)
        daemon = self.start(f'--otlp-endpoint={taken.endpoint}')
        with attack.channel(daemon) as channel:
            for _ in range(3):
                matrix_pb2_grpc.MatrixServiceStub(channel).ListMatrices(matrix_pb2.ListMatricesRequest(), timeout=10)
        taken.wait(lambda: daemon.metric('spaid_spans_dropped_total', reason='not_exported') == 1, daemon)
        self.assertEqual(daemon.metric('spaid_spans_exported_total'), 2)

    def test_the_end_of_the_daemon_sends_what_waits(self):
        taken = self.collector()
        daemon = self.start(f'--otlp-endpoint={taken.endpoint}')
        attack.ask(daemon)
        self.assertEqual(daemon.stop(), 0)
        self.assertTrue(taken.named('spaid.v1.ServerService/GetServerInfo'))

    def test_the_environment_of_opentelemetry(self):
        taken = self.collector()
        os.environ.update({'OTEL_EXPORTER_OTLP_ENDPOINT': taken.endpoint, 'OTEL_SERVICE_NAME': 'solver',
                           'OTEL_RESOURCE_ATTRIBUTES': 'service.name=not,deployment.environment=test',
                           'OTEL_TRACES_SAMPLER': 'parentbased_traceidratio', 'OTEL_TRACES_SAMPLER_ARG': '0'})
        try:
            daemon = self.start()
            for name, value in (('OTEL_TRACES_SAMPLER', 'sometimes'), ('OTEL_TRACES_SAMPLER_ARG', '2'),
                                ('OTEL_RESOURCE_ATTRIBUTES', 'no pair'),
                                ('OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4317')):
                refused = subprocess.run([os.environ['SPAID_DAEMON'], '--address=127.0.0.1:0', '--ops-address='],
                                         capture_output=True, text=True, check=False, timeout=30,
                                         env={**os.environ, name: value})
                self.assertEqual(refused.returncode, 1, refused.stderr)
                self.assertIn('[BAD_FLAG]', refused.stderr)
        finally:
            for name in list(os.environ):
                if name.startswith('OTEL_'):
                    del os.environ[name]
        attack.ask(daemon)  # not sampled
        with attack.channel(daemon) as channel:
            matrix_pb2_grpc.MatrixServiceStub(channel).ListMatrices(
                matrix_pb2.ListMatricesRequest(), timeout=10, metadata=(('traceparent', PARENT),))
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual([span.name for span in taken.spans], ['spaid.v1.MatrixService/ListMatrices'])
        self.assertEqual(taken.resources[0]['service.name'], 'solver')
        self.assertEqual(taken.resources[0]['deployment.environment'], 'test')


class Json(attack.TestCase):

    def test_every_line_is_an_object(self):
        daemon = self.start('--log-format=json', '--log-level=debug')
        with attack.channel(daemon) as channel:
            stub = matrix_pb2_grpc.MatrixServiceStub(channel)
            with self.assertRaises(grpc.RpcError):
                stub.GetMatrix(matrix_pb2.GetMatrixRequest(name='a "b"\n\\ \u00fc'), timeout=10,
                               metadata=(('traceparent', PARENT),))
        self.assertEqual(daemon.stop(), 0)
        lines = [json.loads(line) for line in daemon.text().splitlines()]
        for line in lines:
            self.assertEqual(list(line)[:3], ['ts', 'level', 'event'])
            self.assertRegex(line['ts'], r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$')
        (rpc,) = [line for line in lines if line['event'] == 'rpc' and line['reason'] == 'HANDLE_UNKNOWN']
        self.assertIsInstance(rpc['ms'], float)
        self.assertEqual(rpc['trace_id'], TRACE)
        (serving,) = [line for line in lines if line['event'] == 'serving']
        self.assertIs(serving['tls'], False)
        self.assertIsInstance(serving['matrix_store_bytes'], int)


if __name__ == '__main__':
    attack.main()
