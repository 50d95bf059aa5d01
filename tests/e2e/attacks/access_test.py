"""Callers without credentials, files of tokens, long handles, labels that speak to terminals, page tokens, SIGHUP."""

import os
import pathlib
import signal
import struct
import subprocess

import attack
from spaid.v1 import (arrays_pb2, job_pb2, job_pb2_grpc, matrix_pb2, matrix_pb2_grpc,
                      preconditioner_pb2, preconditioner_pb2_grpc, server_pb2, server_pb2_grpc)

Code = attack.grpc.StatusCode
ANNA, BERT, ROOT = 'anna-token-0123456789', 'bert-token-0123456789', 'root-token-0123456789'


def metadata(token):
    return [('authorization', 'Bearer ' + token)] if token else None


def upload(channel, token=None, first=1.0, label=''):
    """Stores a diagonal matrix of order 2."""
    def chunk(kind, data):
        return matrix_pb2.UploadMatrixRequest(chunk=arrays_pb2.ArrayChunk(array=kind, data=data))
    requests = [
        matrix_pb2.UploadMatrixRequest(header=matrix_pb2.MatrixHeader(
            n=2, nnz=2, layout=arrays_pb2.LAYOUT_CSC, value_type=arrays_pb2.VALUE_TYPE_FLOAT64,
            label=label)),
        chunk(arrays_pb2.ARRAY_KIND_POINTERS, struct.pack('<3q', 0, 1, 2)),
        chunk(arrays_pb2.ARRAY_KIND_INDICES, struct.pack('<2i', 0, 1)),
        chunk(arrays_pb2.ARRAY_KIND_VALUES, struct.pack('<2d', first, 2.0))]
    *_, last = matrix_pb2_grpc.MatrixServiceStub(channel).UploadMatrix(
        iter(requests), timeout=20, metadata=metadata(token))
    return last.done.matrix


class Access(attack.TestCase):
    def tokens(self, text, mode=0o600, name='tokens'):
        folder = attack.daemon_module.tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name, name)
        file.write_text(text)
        file.chmod(mode)
        return file

    def info(self, channel, token=None):
        return server_pb2_grpc.ServerServiceStub(channel).GetServerInfo(
            server_pb2.GetServerInfoRequest(), timeout=10, metadata=metadata(token))

    def test_nobody_is_served_without_credentials(self):
        file = self.tokens(f'{ANNA} anna\n')
        daemon = self.start(f'--tokens={file}')
        with attack.channel(daemon) as ch:
            self.assert_refused(lambda: self.info(ch), Code.UNAUTHENTICATED, 'NO_CREDENTIALS')
            self.assert_refused(lambda: upload(ch), Code.UNAUTHENTICATED, 'NO_CREDENTIALS')
            self.assert_refused(lambda: self.info(ch, 'wrong-wrong-wrong-wrong'),
                                Code.UNAUTHENTICATED, 'BAD_TOKEN')
            self.assertEqual(self.info(ch, ANNA).tenant, 'anna')
            health = ch.unary_unary('/grpc.health.v1.Health/Check')
            self.assertEqual(health(b'', timeout=5), b'\x08\x01')
        anonymous = self.start(f'--tokens={file}', '--allow-anonymous')
        with attack.channel(anonymous) as ch:
            self.assertEqual(self.info(ch).tenant, 'default')

    def test_a_file_that_everybody_can_read_is_refused(self):
        for flag in '--tokens', '--admin-tokens':
            file = self.tokens(f'{ANNA} anna\n', mode=0o644)
            with self.assertRaisesRegex(AssertionError, 'chmod o= '):
                self.start(f'{flag}={file}')

    def test_sighup_reads_tokens_again_and_never_kills(self):
        file = self.tokens(f'{ANNA} anna\n')
        daemon = self.start(f'--tokens={file}')

        def hang_up(says):
            seen = daemon.text().count(says)
            daemon.process.send_signal(signal.SIGHUP)
            daemon.wait(lambda: daemon.text().count(says) > seen, says)
        with attack.channel(daemon) as ch:
            self.assertEqual(self.info(ch, ANNA).tenant, 'anna')
            for broken in 'short bert\n', '':
                file.write_text(broken)
                hang_up('tokens_not_reloaded')
                self.assertEqual(self.info(ch, ANNA).tenant, 'anna')
            file.write_text(f'{BERT} bert\n')
            file.chmod(0o644)
            hang_up('tokens_not_reloaded')
            file.chmod(0o600)
            hang_up('tokens_reloaded')
            self.assertEqual(self.info(ch, BERT).tenant, 'bert')
            self.assert_refused(lambda: self.info(ch, ANNA), Code.UNAUTHENTICATED, 'BAD_TOKEN')
            file.unlink()
            hang_up('tokens_not_reloaded')
            self.assertEqual(self.info(ch, BERT).tenant, 'bert')
            self.assertNotIn('-token-', daemon.text())
        without = self.start()
        for _ in range(3):
            without.process.send_signal(signal.SIGHUP)
        attack.ask(without)

    def test_tokens_are_read_again_while_the_daemon_drains(self):
        file = self.tokens(f'{ANNA} anna\n')
        daemon = self.start(f'--tokens={file}', '--drain-grace=60s')
        with attack.channel(daemon) as ch:
            self.assertEqual(self.info(ch, ANNA).tenant, 'anna')
            daemon.process.send_signal(signal.SIGTERM)
            daemon.wait(lambda: 'signal signal=SIGTERM' in daemon.text(), 'drains')
            file.write_text(f'{BERT} bert\n')
            daemon.process.send_signal(signal.SIGHUP)
            daemon.wait(lambda: 'tokens_reloaded' in daemon.text(), 'reads the tokens')
            self.assertEqual(self.info(ch, BERT).tenant, 'bert')
            self.assert_refused(lambda: self.info(ch, ANNA), Code.UNAUTHENTICATED, 'BAD_TOKEN')
        daemon.process.send_signal(signal.SIGTERM)  # the second one ends the grace time

    def test_tokens_go_in_clear_beyond_loopback_where_that_is_said(self):
        daemon = self.start(f"--tokens={self.tokens(f'{ANNA} anna')}", '--address=0.0.0.0:0', '--insecure',
                            '--tokens-in-clear')
        with attack.channel(daemon) as ch:
            self.assertEqual(self.info(ch, ANNA).tenant, 'anna')

    def test_a_long_handle_is_unknown_and_not_repeated(self):
        daemon = self.start()
        with attack.channel(daemon) as ch:
            matrices = matrix_pb2_grpc.MatrixServiceStub(ch)
            for size in 100, 2000, 5000, 20_000, 1_000_000:
                with self.assertRaises(attack.grpc.RpcError) as caught:
                    matrices.GetMatrix(matrix_pb2.GetMatrixRequest(name='m' * size), timeout=10)
                self.assertEqual(attack.reason(caught.exception), 'HANDLE_UNKNOWN')
                self.assertNotIn('m' * 65, caught.exception.details())
            for name in 'jobs/\x1b[2J', 'x' * 100_000:
                self.assert_refused(
                    lambda: job_pb2_grpc.JobServiceStub(ch).GetJob(
                        job_pb2.GetJobRequest(name=name), timeout=10),
                    Code.NOT_FOUND, 'HANDLE_UNKNOWN')
                self.assert_refused(
                    lambda: preconditioner_pb2_grpc.PreconditionerServiceStub(ch).GetPreconditioner(
                        preconditioner_pb2.GetPreconditionerRequest(name=name), timeout=10),
                    Code.NOT_FOUND, 'HANDLE_UNKNOWN')

    def test_labels_do_not_speak_to_terminals(self):
        daemon = self.start('--log-level=debug')
        with attack.channel(daemon) as ch:
            for label in '\x1b]0;owned\x07', '\x9b2J', 'a\nb', '\u202etxt.exe', '\x00':
                self.assert_refused(lambda: upload(ch, label=label), Code.INVALID_ARGUMENT, 'BAD_LABEL')
            self.assertEqual(upload(ch, label='Brücke').label, 'Brücke')
        self.assertNotIn('\x1b', daemon.text())

    def test_page_tokens_count_nobody(self):
        daemon = self.start(f'--tokens={self.tokens(f"{ANNA} anna{os.linesep}{BERT} bert")}')
        with attack.channel(daemon) as ch:
            def token():
                return matrix_pb2_grpc.MatrixServiceStub(ch).ListMatrices(
                    matrix_pb2.ListMatricesRequest(page_size=1), timeout=10,
                    metadata=metadata(BERT)).next_page_token
            for first in 1.0, 2.0:
                upload(ch, BERT, first)
            before = token()
            for first in 1.0, 2.0, 3.0:
                upload(ch, ANNA, first)
            self.assertEqual(token(), before)
            upload(ch, BERT, 3.0)
            close = abs(int(token(), 16) - int(before, 16))
            self.assertGreater(close, 1 << 64)  # of 128 bits: by chance once in 2^63

    def test_others_are_told_to_administrators_alone(self):
        daemon = self.start(f'--tokens={self.tokens(f"{ANNA} anna{os.linesep}{BERT} bert")}',
                            f'--admin-tokens={self.tokens(f"{ROOT} operators")}')
        with attack.channel(daemon) as ch:
            jobs, builds = job_pb2_grpc.JobServiceStub(ch), \
                preconditioner_pb2_grpc.PreconditionerServiceStub(ch)
            header = preconditioner_pb2.BuildHeader(matrix=upload(ch, ANNA).name)
            header.spec.engine = 4  # STATIC_SPAI
            list(builds.BuildPreconditioner(
                iter([preconditioner_pb2.BuildPreconditionerRequest(header=header)]), timeout=20,
                metadata=metadata(ANNA)))
            self.assertFalse(self.info(ch, ANNA).queue.estimate_ratios)
            self.assertTrue(self.info(ch, ROOT).administrator)

            def listed(token, everybody):
                return jobs.ListJobs(job_pb2.ListJobsRequest(all_tenants=everybody), timeout=10,
                                     metadata=metadata(token)).jobs
            self.assertEqual([job.tenant for job in listed(ROOT, True)], ['anna'])
            self.assertEqual(len(listed(BERT, False)), 0)
            self.assert_refused(lambda: listed(BERT, True), Code.PERMISSION_DENIED, 'NOT_ADMINISTRATOR')

    def test_the_port_file_of_a_newer_daemon_stays(self):
        older = self.start()
        file = pathlib.Path(older.folder.name, 'port')
        newer = subprocess.Popen([os.environ['SPAID_DAEMON'], '--address=127.0.0.1:0', '--ops-address=off',
                                  '--drain-grace=0s', f'--port-file={file}'], stderr=subprocess.DEVNULL)
        self.addCleanup(newer.wait)
        self.addCleanup(newer.kill)
        older.wait(lambda: file.read_text().strip() != older.address, 'is overwritten', 30)
        address = file.read_text()
        older.stop()
        self.assertEqual(file.read_text(), address)
        newer.terminate()
        self.assertEqual(newer.wait(30), 0)
        self.assertFalse(file.exists())


if __name__ == '__main__':
    attack.main()
