! The Fortran module through the real daemon: every kind of array, every failure that it finds itself.
! With a second argument it fails without stat, which must end the program with words.
program module_test
  use, intrinsic :: iso_fortran_env, only: int32, int64, real64
  use spaid
  implicit none
  type(spaid_options) :: options
  type(spaid_client) :: client
  type(spaid_system) :: a, b
  type(spaid_preconditioner) :: m, none
  type(spaid_report) :: report
  ! [ 4 -1 0 ; -1 4 -1 ; 0 -1 4 ], whose rows are its columns, and [ 4 -1 0 ; -2 4 -1 ; 0 -1 4 ]
  integer(int32), parameter :: ptr(4) = [1, 3, 6, 8], idx(7) = [1, 2, 1, 2, 3, 2, 3]
  real(real64), parameter :: symmetric(7) = [4, -1, -1, 4, -1, -1, 4], &
      by_rows(7) = [4, -1, -2, 4, -1, -1, 4], by_columns(7) = [4, -2, -1, 4, -1, -1, 4]
  real(real64), parameter :: want(3) = [1, 2, 3], rhs(3) = [2, 3, 10]
  integer(int64), allocatable :: col_ptr(:)
  integer(int32), allocatable :: row_idx(:)
  real(real64), allocatable :: values(:)
  real(real64) :: x(3), y(3), many(3, 2), wide(6), gx(3), gtgx(3), product(3, 2)
  real(real64) :: residual
  logical :: is_factor
  integer :: stat, j, k
  character(300) :: errmsg
  character(100) :: argument

  call get_command_argument(1, argument)
  call options%set('address', argument)
  call options%set('engine', 'fsai')
  call options%set('pattern-power', 2)
  call options%set('rtol', 1d-12)
  call options%set('row-match', .false.)
  call client%open(options)
  if (command_argument_count() > 1) call options%set('engine', 'magic')

  ! Both kinds of integers, both bases, rows and columns, a section.
  call a%create_csr(client, ptr, idx, by_rows)
  call solves('32, 32')
  call a%create_csr(client, int(ptr, int64), idx, by_rows)
  call solves('64, 32')
  call a%create_csr(client, ptr, int(idx, int64), by_rows)
  call solves('32, 64')
  call a%create_csc(client, int(ptr, int64), int(idx, int64), by_columns)
  call solves('64, 64, by columns')
  call a%create_csr(client, ptr - 1, idx - 1, by_rows, zero_based=.true.)
  call solves('0-based')
  call a%create_csr(client, [1, 4, 7, 9], [2, 1, 1, 3, 2, 1, 3, 2], &
      [-1d0, 1d0, 3d0, -1d0, 4d0, -2d0, 4d0, -1d0], duplicates=.true.)
  call solves('given twice')
  wide = 0
  wide(1:6:2) = rhs
  many = 0
  x = 0
  call a%solve(wide(1:6:2), x)
  call near(x, want, 'section')

  ! Several right-hand sides, M and its products.
  call a%create_csr(client, ptr, idx, 2*symmetric)
  call a%set_values(symmetric)
  many(:, 1) = [2, 4, 10]
  many(:, 2) = 2*many(:, 1)
  call a%solve(many, product, options, guess=many, report=report)
  call near(product(:, 1), want, 'first')
  call near(product(:, 2), 2*want, 'second')
  call expect(report%outcome(2) == spaid_converged, 'outcome')
  call expect(report%iterations(1) > 0, 'iterations')
  residual = report%residual(1)
  call expect(residual >= 0 .and. residual <= 1d-12, 'residual')
  call expect(report%text('engine') == 'fsai', 'engine')
  call expect(report%number('nnz_ratio') > 0, 'ratio')
  call expect(report%outcome(3) == spaid_invalid_argument, 'no third')
  call expect(report%text('nothing') == '', 'no such text')
  call expect(report%number('nothing') < 0, 'no such number')
  call a%build(m, options, report)
  call expect(report%number('is_factor') > 0.5, 'FSAI is factored')
  call m%get_csc(col_ptr, row_idx, values, is_factor)
  call expect(is_factor, 'a factor')
  call expect(col_ptr(1) == 1 .and. col_ptr(4) == size(values) + 1, 'pointers from 1')
  call expect(minval(row_idx) == 1 .and. maxval(row_idx) == 3, 'indices from 1')
  gx = 0
  do j = 1, 3
    do k = int(col_ptr(j)), int(col_ptr(j + 1)) - 1
      gx(row_idx(k)) = gx(row_idx(k)) + values(k)*want(j)
    end do
  end do
  call m%apply(want, y, operation=spaid_g)
  call near(y, gx, 'G')
  call m%apply(gx, gtgx, operation=spaid_g_transposed)
  call m%apply(want, y)
  call near(y, gtgx, 'M')
  many(:, 1) = want
  many(:, 2) = -want
  call m%apply(many, product)
  call near(product(:, 2), -gtgx, 'M of many')
  call near(matmul(reshape([4d0, -1d0, 0d0, -1d0, 4d0, -1d0, 0d0, -1d0, 4d0], [3, 3]), &
      gtgx), want, 'on a full pattern the inverse')

  ! Multigrid's vectors; a matrix so small is one level, which is inverted.
  call options%set('engine', 'amg')
  call a%set_near_null_space(reshape([1d0, 1d0, 1d0], [3, 1]))
  call a%solve([2d0, 4d0, 10d0], x, options)
  call near(x, want, 'with near-null vectors')
  call a%set_near_null_space(reshape([1d0, 1d0, 1d0, 2d0, 2d0, 2d0], [3, 2]))
  call a%solve([2d0, 4d0, 10d0], x, options, stat=stat, errmsg=errmsg)
  call refused('near-null space')
  call a%set_coordinates(reshape([real(real64) ::], [0, 2]))
  call a%set_near_null_space(reshape([1d0, 1d0], [2, 1]), stat, errmsg)
  call refused('2 rows, the matrix 3')
  call a%set_coordinates(reshape([1d0, 1d0], [1, 2]), stat, errmsg)
  call refused('2 numbers')

  ! Refusals, with words.
  call options%set('k-max', 1000, stat, errmsg)
  call refused('k-max')
  call b%create_csr(client, ptr, idx, by_rows(1:6), stat=stat, errmsg=errmsg)
  call refused('as many')
  call b%create_csr(client, [1d0, 2d0], idx(1:1), by_rows(1:1), stat=stat, errmsg=errmsg)
  call refused('integer(int32)')
  call b%create_csr(client, ptr, [.true., .false.], by_rows, stat=stat, errmsg=errmsg)
  call refused('integer(int32)')
  call b%create_csr(client, ptr, [1, 2, 1, 2, 4, 2, 3], by_rows, stat=stat, errmsg=errmsg)
  call refused('from 1 to 3')
  call b%solve(rhs, x, stat=stat, errmsg=errmsg)
  call refused('system is NULL')
  call b%set_values(symmetric, stat=stat, errmsg=errmsg)
  call refused('system is NULL')
  call b%set_near_null_space(reshape(rhs, [3, 1]), stat, errmsg)
  call refused('system is NULL')
  call b%set_coordinates(reshape(rhs, [1, 3]), stat, errmsg)
  call refused('system is NULL')
  call none%apply(rhs, x, stat=stat, errmsg=errmsg)
  call refused('preconditioner is NULL')
  call a%set_values(symmetric(2:), stat=stat, errmsg=errmsg)
  call refused('6 numbers, the pattern 7')
  call a%solve(wide, x, stat=stat, errmsg=errmsg)
  call refused('n = 3')
  call a%solve(rhs, x, guess=wide, stat=stat, errmsg=errmsg)
  call refused('n = 3')
  call m%apply(wide, x, stat=stat, errmsg=errmsg)
  call refused('n = 3')
  call m%apply(rhs, x, operation=7, stat=stat, errmsg=errmsg)
  call refused('operation is 7')
  call options%set('engine', 'none')
  call options%set('max-iterations', 1)
  call a%solve(rhs, x, options, stat=stat, errmsg=errmsg)
  call expect(stat == spaid_max_iterations, 'an outcome')
  call expect(index(errmsg, 'max-iterations') > 0, 'an outcome in words')
  call a%cancel(stat)
  call expect(stat == 0, 'nothing to cancel')
  call expect(spaid_version() /= '', 'version')

  call report%free()
  call m%free()
  call a%free()
  call client%free()
  call options%free()
  deallocate (col_ptr, row_idx, values)
  print '(a)', 'all holds'

contains

  subroutine solves(what)
    character(*), intent(in) :: what
    type(spaid_options) :: precise
    call precise%set('rtol', 1e-12_real64)
    x = -1
    call a%solve(rhs, x, precise)
    call near(x, want, what)
    call precise%free()
  end subroutine

  subroutine near(found, wanted, what)
    real(real64), intent(in) :: found(:), wanted(:)
    character(*), intent(in) :: what
    call expect(maxval(abs(found - wanted)) < 1e-9_real64, what)
  end subroutine

  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    if (holds) return
    print '(2a)', 'does not hold: ', what
    error stop 1
  end subroutine

  subroutine refused(word)
    character(*), intent(in) :: word
    if (stat /= spaid_invalid_argument .or. index(errmsg, word) == 0) then
      print '(3a, i0, 2a)', 'not refused by "', word, '": ', stat, ' ', trim(errmsg)
      error stop 1
    end if
  end subroutine

end program module_test
