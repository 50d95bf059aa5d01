"""The include checker finds what it must and lets pass what it may: each case is a tiny tree."""

import pathlib
import tempfile
import unittest

import check_includes


class CheckIncludesTest(unittest.TestCase):

    def breaches(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return list(check_includes.breaches(folder))

    def assert_breach(self, name, text, part):
        found = self.breaches({name: text})
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])
        self.assertTrue(found[0].startswith(f'{name}:'), found[0])

    def assert_clean(self, name, text):
        self.assertEqual(self.breaches({name: text}), [])

    def test_kernels_know_nothing_of_the_server(self):
        self.assert_breach('kernels/base/a.cc', '#include "server/base/status.h"\n',
                           'kernels/base must not include server/base/status.h')

    def test_kernels_know_no_third_party(self):
        for name in ('absl/status/status.h', 'grpcpp/grpcpp.h', 'spdlog/spdlog.h', 'Eigen/Core',
                     'spaid/v1/matrix.pb.h'):
            self.assert_breach('kernels/sparse/a.h', f'#include <{name}>\n', name)

    def test_kernels_use_the_standard_library_and_cuda(self):
        self.assert_clean(
            'kernels/base/a.cc',
            '#include <vector>\n#include <dlfcn.h>\n#include <cuda_runtime.h>\n#include <cub/cub.cuh>\n')

    def test_mpi_and_petsc_have_one_room_of_the_kernels(self):
        self.assert_clean('kernels/mpi/a.cc', '#include <mpi.h>\n#include <petscksp.h>\n')
        self.assert_breach('kernels/krylov/a.cc', '#include <petscksp.h>\n', 'petscksp.h')
        self.assert_clean('kernels/mpi/a.cc', '#include <netinet/in.h>\n#include <ifaddrs.h>\n')
        self.assert_breach('kernels/krylov/a.cc', '#include <netinet/in.h>\n', 'netinet/in.h')
        self.assert_breach('kernels/mpi/a.cc', '#include "kernels/engine/engine.h"\n',
                           'kernels/mpi must not include')
        self.assert_clean('kernels/engine/a.h', '#include "kernels/mpi/ranks_device.h"\n')
        self.assert_breach('kernels/engine/a.cc', '#include "kernels/mpi/hybrid_spai.h"\n',
                           'ranks_device.h alone')
        self.assert_breach('kernels/krylov/a.cc', '#include "kernels/mpi/ranks_device.h"\n',
                           'kernels/krylov must not include')

    def test_kernels_arrows_point_down(self):
        self.assert_breach('kernels/base/a.h', '#include "kernels/sparse/matrix.h"\n',
                           'kernels/base must not include')
        self.assert_breach('kernels/krylov/a.h', '#include "kernels/static_spai/x.h"\n',
                           'kernels/krylov must not include')
        self.assert_clean('kernels/engine/a.h', '#include "kernels/krylov/krylov.h"\n')

    def test_only_the_engine_room_sees_kernels(self):
        for room in ('base', 'store', 'sched', 'rpc', 'ops'):
            self.assert_breach(f'server/{room}/a.h', '#include "kernels/engine/engine.h"\n',
                               f'server/{room} must not include')
        self.assert_clean('server/engine/a.h', '#include "kernels/engine/engine.h"\n')

    def test_only_rpc_sees_the_services(self):
        for room in ('base', 'store', 'sched', 'engine', 'ops'):
            self.assert_breach(f'server/{room}/a.h', '#include "spaid/v1/matrix.grpc.pb.h"\n',
                               'proto/services')
            self.assert_clean(f'server/{room}/a.h', '#include "spaid/v1/matrix.pb.h"\n')
        self.assert_clean('server/rpc/a.h', '#include "spaid/v1/matrix.grpc.pb.h"\n')

    def test_the_scheduler_knows_no_grpc(self):
        self.assert_breach('server/sched/a.h', '#include <grpcpp/grpcpp.h>\n', 'grpcpp/')

    def test_clients_know_neither_server_nor_kernels(self):
        self.assert_breach('client/cpp/a.cc', '#include "server/base/digest.h"\n', 'client/cpp')
        self.assert_breach('client/cpp/a.cc', '#include "kernels/sparse/matrix.h"\n', 'client/cpp')
        self.assert_breach('client/cli/a.cc', '#include "spaid/v1/matrix.pb.h"\n', 'client/cli')
        self.assert_breach('client/cli/a.cc', '#include "kernels/sparse/matrix.h"\n', 'client/cli')
        self.assert_clean('client/cli/a.cc', '#include <spaid/client.h>\n')

    def test_the_gallery_is_open_to_command_lines_and_stands_alone(self):
        for room in ('client/cli', 'client/load', 'kernels/bench', 'tests/e2e'):
            self.assert_clean(f'{room}/a.cc', '#include "kernels/gallery/gallery.h"\n')
            self.assert_clean(f'{room}/CMakeLists.txt',
                              'target_link_libraries(x PRIVATE spaid_kernels_gallery)\n')
        self.assert_breach('client/cpp/a.cc', '#include "kernels/gallery/gallery.h"\n',
                           'client/cpp')
        self.assert_breach('client/cli/CMakeLists.txt',
                           'target_link_libraries(x PRIVATE spaid_kernels_sparse)\n',
                           'must not link spaid_kernels_sparse')
        self.assert_breach('kernels/gallery/a.cc', '#include "kernels/base/status.h"\n',
                           'kernels/gallery must not include')

    def test_nothing_includes_tests(self):
        self.assert_breach('client/cli/a.cc', '#include "tests/oracle/dense.h"\n', 'tests')
        self.assert_breach('client/cli/a.cc', '#include <gtest/gtest.h>\n', 'gtest/')
        self.assert_clean('tests/kernels/a.cc', '#include "tests/oracle/dense.h"\n')

    def test_a_new_room_must_be_given_arrows(self):
        found = self.breaches({'server/extra/a.h': '#include <vector>\n'})
        self.assertEqual(len(found), 1)
        self.assertIn('server/extra has no arrows', found[0])

    def test_an_include_beside_the_file_is_written_from_the_root(self):
        found = self.breaches({'server/base/a.h': '#include "b.h"\n', 'server/base/b.h': ''})
        self.assertEqual(len(found), 1)
        self.assertIn('as a path from the root', found[0])

    def test_indented_and_spaced_includes_count(self):
        self.assert_breach('server/sched/a.h', '  #  include   "kernels/base/status.h"\n',
                           'server/sched')

    def test_forbidden_links_are_found(self):
        self.assert_breach('server/sched/CMakeLists.txt',
                           'target_link_libraries(spaid_server_sched PUBLIC spaid_proto_grpc)\n',
                           'must not link spaid_proto_grpc')
        self.assert_breach('server/engine/CMakeLists.txt',
                           'target_link_libraries(spaid_server_engine PUBLIC spaid_kernels_krylov)\n',
                           'must not link spaid_kernels_krylov')
        self.assert_breach('kernels/sparse/CMakeLists.txt',
                           'spaid_kernels_library(sparse DEPS spaid_kernels_dense)\n',
                           'must not link spaid_kernels_dense')
        self.assert_clean('server/engine/CMakeLists.txt',
                          'target_link_libraries(spaid_server_engine PUBLIC spaid_kernels_engine)\n')

    def test_links_in_comments_do_not_count(self):
        self.assert_clean('server/sched/CMakeLists.txt', '# never spaid_proto_grpc\n')


if __name__ == '__main__':
    unittest.main()
