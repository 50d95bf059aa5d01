! Cooling of a plate in Fortran: implicit time steps on one pattern, whose values change with the
! step
! length. M of a step serves the next ones while it does.
!
!   spaid_example_cooling 127.0.0.1:7433 [CELLS A SIDE]
program cooling
  use, intrinsic :: iso_fortran_env, only: real64, int64
  use spaid
  implicit none
  type(spaid_options) :: options
  type(spaid_client) :: client
  type(spaid_system) :: plate
  type(spaid_report) :: report
  type(spaid_preconditioner) :: m
  integer, allocatable :: row_ptr(:), col_idx(:)
  real(real64), allocatable :: values(:), temperature(:), next(:), product(:)
  integer :: side, step, stat
  real(real64) :: heat, dt
  character(400) :: errmsg
  character(256) :: argument

  if (command_argument_count() < 1) error stop 'usage: spaid_example_cooling ADDRESS [CELLS A SIDE]'
  side = 60
  if (command_argument_count() > 1) then
    call get_command_argument(2, argument)
    read (argument, *) side
  end if
  call get_command_argument(1, argument)
  call options%set('address', argument)
  call options%set('engine', 'fsai')
  call options%set('rtol', 1e-10_real64)
  call client%open(options)

  call make_pattern()
  allocate (temperature(side**2), next(side**2), product(side**2))
  temperature = 1
  dt = 1e-4_real64
  call set_values(dt)
  call plate%create_csr(client, row_ptr, col_idx, values)
  do step = 1, 5
    call set_values(dt)
    call plate%set_values(values)
    call plate%solve(temperature, next, options, guess=temperature, report=report, stat=stat, &
        errmsg=errmsg)
    if (stat /= 0) then
      print '(a, i0, 2a)', 'step ', step, ': ', trim(errmsg)
      error stop 1
    end if
    print '(a, i0, a, i0, a, es8.1, 2a)', 'step ', step, ': ', report%iterations(1), &
        ' iterations, residual ', report%residual(1), ', M ', fate(report%text('reuse.decision'))
    temperature = next
    dt = 1.3_real64*dt
  end do
  heat = sum(temperature)/side**2
  print '(a, f6.3)', 'of the heat there is left: ', heat
  if (heat <= 0 .or. heat >= 1 .or. maxval(temperature) > 1) error stop 'not physical'

  call plate%build(m, options)
  call m%apply(temperature, product)
  call check_errors()
  call m%free()
  call report%free()
  call plate%free()
  call client%free()
  call options%free()
  deallocate (row_ptr, col_idx, values, temperature, next, product)

contains

  function fate(decision) result(words)
    character(*), intent(in) :: decision
    character(:), allocatable :: words
    words = decision
    if (words == '') words = 'built'
  end function

  integer function cell(i, j)
    integer, intent(in) :: i, j
    cell = (i - 1)*side + j
  end function

  ! Five points, by rows, columns in order; the edge loses heat.
  subroutine make_pattern()
    integer :: i, j
    allocate (row_ptr(side**2 + 1), col_idx(0))
    row_ptr(1) = 1
    do i = 1, side
      do j = 1, side
        if (i > 1) col_idx = [col_idx, cell(i - 1, j)]
        if (j > 1) col_idx = [col_idx, cell(i, j - 1)]
        col_idx = [col_idx, cell(i, j)]
        if (j < side) col_idx = [col_idx, cell(i, j + 1)]
        if (i < side) col_idx = [col_idx, cell(i + 1, j)]
        row_ptr(cell(i, j) + 1) = size(col_idx) + 1
      end do
    end do
    allocate (values(size(col_idx)))
  end subroutine

  subroutine set_values(dt)
    real(real64), intent(in) :: dt
    integer :: row, k
    do row = 1, side**2
      do k = row_ptr(row), row_ptr(row + 1) - 1
        values(k) = -dt*side**2
        if (col_idx(k) == row) values(k) = 1 + 4*dt*side**2
      end do
    end do
  end subroutine

  ! Several right-hand sides, and an error in words.
  subroutine check_errors()
    real(real64) :: b(side**2, 2), x(side**2, 2)
    b(:, 1) = temperature
    b(:, 2) = 2*temperature
    call plate%solve(b, x, options)
    if (maxval(abs(x(:, 2) - 2*x(:, 1))) > 1e-6_real64*maxval(abs(x))) error stop 'not linear'
    call options%set('engine', 'magic', stat, errmsg)
    if (stat /= spaid_invalid_argument) error stop 'magic was accepted'
    print '(a)', trim(errmsg)
  end subroutine

end program cooling
