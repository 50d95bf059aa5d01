! The Fortran interface of spaid, on libspaid.so (<spaid/spaid.h>): Fortran 2018 with iso_c_binding.
! Compile this file with your own compiler; module files of one do not serve another.
!
!   use spaid
!   type(spaid_client) :: client
!   type(spaid_system) :: a
!   call client%open()                                        ! $SPAID_ADDRESS, or 127.0.0.1:7433
!   call a%create_csr(client, row_ptr, col_idx, values)       ! 1-based; int32 or int64, each
!   call a%solve(b, x)                                        ! b(n) or b(n, k)
!   call a%free(); call client%free()
!
! All end with the optional stat and errmsg: 0, or < 0, an error, minus gRPC's code, or > 0, the
! outcome of a solve that did not converge (spaid_stagnated), with the words in errmsg. Without stat
! anything but 0 ends the program with them. Objects are freed by their free, in any order, and must not
! be copied. Arrays are copied when they are given, so that temporaries will do.
module spaid
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int32, int64, real64
  implicit none
  private

  integer, parameter, public :: spaid_stopped = -1, spaid_invalid_argument = -3, &
      spaid_deadline_exceeded = -4, spaid_not_found = -5, spaid_resource_exhausted = -8, &
      spaid_failed_precondition = -9, spaid_unavailable = -14
  integer, parameter, public :: spaid_converged = 0, spaid_max_iterations = 1, &
      spaid_stagnated = 2, spaid_breakdown = 3, spaid_indefinite = 4, spaid_non_finite = 5, &
      spaid_time_limit = 6, spaid_cancelled = 7
  integer, parameter, public :: spaid_m = 0, spaid_m_transposed = 1, spaid_g = 2, &
      spaid_g_transposed = 3

  integer(c_int), parameter :: one_based = 1, copy = 2, sort_and_sum = 4

  ! Options by spaidctl's names without the dashes: call options%set('engine', 'fsai').
  type, public :: spaid_options
    private
    type(c_ptr) :: c = c_null_ptr
  contains
    procedure, private :: set_text, set_integer, set_real, set_logical
    generic :: set => set_text, set_integer, set_real, set_logical
    procedure :: free => free_options
  end type

  type, public :: spaid_client
    private
    type(c_ptr) :: c = c_null_ptr
  contains
    procedure :: open => open_client
    procedure :: free => free_client
  end type

  ! How a solve or a build went; rhs counts from 1.
  type, public :: spaid_report
    private
    type(c_ptr) :: c = c_null_ptr
  contains
    procedure :: outcome, iterations, residual, number, text
    procedure :: free => free_report
  end type

  ! M, or G of M = transpose(G) G, whose product with vectors is here.
  type, public :: spaid_preconditioner
    private
    type(c_ptr) :: c = c_null_ptr
  contains
    procedure :: get_csc
    procedure, private :: apply_one, apply_many
    generic :: apply => apply_one, apply_many
    procedure :: free => free_preconditioner
  end type

  type, public :: spaid_system
    private
    type(c_ptr) :: c = c_null_ptr
    integer(int64) :: n = 0, nnz = 0
  contains
    procedure :: create_csr, create_csc, set_values, set_near_null_space, set_coordinates, build, &
        cancel
    procedure, private :: solve_one, solve_many
    generic :: solve => solve_one, solve_many
    procedure :: free => free_system
  end type

  public :: spaid_version

  interface
    function c_version() bind(c, name='spaid_version') result(text)
      import :: c_ptr
      type(c_ptr) :: text
    end function
    function c_last_error() bind(c, name='spaid_last_error') result(text)
      import :: c_ptr
      type(c_ptr) :: text
    end function
    function c_status_name(status) bind(c, name='spaid_status_name') result(text)
      import :: c_ptr, c_int
      integer(c_int), value :: status
      type(c_ptr) :: text
    end function
    integer(c_int) function c_options_new(options) bind(c, name='spaid_options_new')
      import :: c_ptr, c_int
      type(c_ptr) :: options
    end function
    integer(c_int) function c_options_set(options, name, value) bind(c, name='spaid_options_set')
      import :: c_ptr, c_int, c_char
      type(c_ptr), value :: options
      character(kind=c_char), intent(in) :: name(*), value(*)
    end function
    subroutine c_options_free(options) bind(c, name='spaid_options_free')
      import :: c_ptr
      type(c_ptr), value :: options
    end subroutine
    integer(c_int) function c_client_new(options, client) bind(c, name='spaid_client_new')
      import :: c_ptr, c_int
      type(c_ptr), value :: options
      type(c_ptr) :: client
    end function
    subroutine c_client_free(client) bind(c, name='spaid_client_free')
      import :: c_ptr
      type(c_ptr), value :: client
    end subroutine
    integer(c_int) function c_system_csr(client, n, ptr, ptr_bits, idx, idx_bits, values, flags, &
        system) bind(c, name='spaid_system_csr')
      import :: c_ptr, c_int, c_long, c_double
      type(c_ptr), value :: client, ptr, idx
      integer(c_long), value :: n
      integer(c_int), value :: ptr_bits, idx_bits, flags
      real(c_double), intent(in) :: values(*)
      type(c_ptr) :: system
    end function
    integer(c_int) function c_system_csc(client, n, ptr, ptr_bits, idx, idx_bits, values, flags, &
        system) bind(c, name='spaid_system_csc')
      import :: c_ptr, c_int, c_long, c_double
      type(c_ptr), value :: client, ptr, idx
      integer(c_long), value :: n
      integer(c_int), value :: ptr_bits, idx_bits, flags
      real(c_double), intent(in) :: values(*)
      type(c_ptr) :: system
    end function
    integer(c_int) function c_system_set_near_null_space(system, count, vectors) &
        bind(c, name='spaid_system_set_near_null_space')
      import :: c_ptr, c_int, c_double
      type(c_ptr), value :: system
      integer(c_int), value :: count
      real(c_double), intent(in) :: vectors(*)
    end function
    integer(c_int) function c_system_set_coordinates(system, count, coordinates) &
        bind(c, name='spaid_system_set_coordinates')
      import :: c_ptr, c_int, c_double
      type(c_ptr), value :: system
      integer(c_int), value :: count
      real(c_double), intent(in) :: coordinates(*)
    end function
    integer(c_int) function c_system_set_values(system, values) &
        bind(c, name='spaid_system_set_values')
      import :: c_ptr, c_int, c_double
      type(c_ptr), value :: system
      real(c_double), intent(in) :: values(*)
    end function
    subroutine c_system_free(system) bind(c, name='spaid_system_free')
      import :: c_ptr
      type(c_ptr), value :: system
    end subroutine
    integer(c_int) function c_solve(system, options, rhs_count, b, guess, x, report) &
        bind(c, name='spaid_solve')
      import :: c_ptr, c_int, c_double
      type(c_ptr), value :: system, options, guess, report
      integer(c_int), value :: rhs_count
      real(c_double), intent(in) :: b(*)
      real(c_double), intent(inout) :: x(*)
    end function
    integer(c_int) function c_build(system, options, preconditioner, report) &
        bind(c, name='spaid_build')
      import :: c_ptr, c_int
      type(c_ptr), value :: system, options, report
      type(c_ptr) :: preconditioner
    end function
    integer(c_int) function c_cancel(system) bind(c, name='spaid_cancel')
      import :: c_ptr, c_int
      type(c_ptr), value :: system
    end function
    integer(c_int) function c_preconditioner_csc(preconditioner, n, ptr, idx, values, is_factor) &
        bind(c, name='spaid_preconditioner_csc')
      import :: c_ptr, c_int, c_long
      type(c_ptr), value :: preconditioner
      integer(c_long) :: n
      type(c_ptr) :: ptr, idx, values
      integer(c_int) :: is_factor
    end function
    integer(c_int) function c_apply(preconditioner, operation, count, x, y) &
        bind(c, name='spaid_apply')
      import :: c_ptr, c_int, c_double
      type(c_ptr), value :: preconditioner
      integer(c_int), value :: operation, count
      real(c_double), intent(in) :: x(*)
      real(c_double), intent(inout) :: y(*)
    end function
    subroutine c_preconditioner_free(preconditioner) bind(c, name='spaid_preconditioner_free')
      import :: c_ptr
      type(c_ptr), value :: preconditioner
    end subroutine
    integer(c_int) function c_report_outcome(report, rhs) bind(c, name='spaid_report_outcome')
      import :: c_ptr, c_int
      type(c_ptr), value :: report
      integer(c_int), value :: rhs
    end function
    integer(c_long) function c_report_iterations(report, rhs) &
        bind(c, name='spaid_report_iterations')
      import :: c_ptr, c_int, c_long
      type(c_ptr), value :: report
      integer(c_int), value :: rhs
    end function
    real(c_double) function c_report_residual(report, rhs) bind(c, name='spaid_report_residual')
      import :: c_ptr, c_int, c_double
      type(c_ptr), value :: report
      integer(c_int), value :: rhs
    end function
    integer(c_int) function c_report_number(report, name, number) &
        bind(c, name='spaid_report_number')
      import :: c_ptr, c_int, c_char, c_double
      type(c_ptr), value :: report
      character(kind=c_char), intent(in) :: name(*)
      real(c_double) :: number
    end function
    integer(c_int) function c_report_text(report, name, text) bind(c, name='spaid_report_text')
      import :: c_ptr, c_int, c_char
      type(c_ptr), value :: report
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr) :: text
    end function
    subroutine c_report_free(report) bind(c, name='spaid_report_free')
      import :: c_ptr
      type(c_ptr), value :: report
    end subroutine
    integer(c_size_t) function c_strlen(text) bind(c, name='strlen')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
    end function
  end interface

contains

  ! Texts and errors

  function fortran_text(c) result(text)
    type(c_ptr), intent(in) :: c
    character(:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer(c_size_t) :: i
    call c_f_pointer(c, letters, [c_strlen(c)])
    allocate (character(size(letters)) :: text)
    do i = 1, size(letters)
      text(i:i) = letters(i)
    end do
  end function

  pure function c_text(text) result(c)
    character(*), intent(in) :: text
    character(:), allocatable :: c
    c = trim(text) // c_null_char
  end function

  function spaid_version() result(text)
    character(:), allocatable :: text
    text = fortran_text(c_version())
  end function

  ! Hands a status to the caller, or ends the program where the caller takes none.
  subroutine give(status, stat, errmsg)
    integer(c_int), intent(in) :: status
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    character(:), allocatable :: words
    if (present(stat)) stat = status
    if (status == 0) return
    if (status < 0) words = fortran_text(c_last_error())
    if (status > 0) words = 'the solve did not converge: ' // fortran_text(c_status_name(status))
    if (present(errmsg)) errmsg = words
    if (.not. present(stat)) error stop words
  end subroutine

  ! The same for an error that is found here.
  subroutine refuse(words, stat, errmsg)
    character(*), intent(in) :: words
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    if (present(errmsg)) errmsg = words
    if (.not. present(stat)) error stop words
    stat = spaid_invalid_argument
  end subroutine

  pure function decimal(number) result(text)
    integer(int64), intent(in) :: number
    character(:), allocatable :: text
    character(20) :: wide
    write (wide, '(i0)') number
    text = trim(wide)
  end function

  ! Options

  subroutine set_text(self, name, value, stat, errmsg)
    class(spaid_options), intent(inout) :: self
    character(*), intent(in) :: name, value
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: status
    status = 0
    if (.not. c_associated(self%c)) status = c_options_new(self%c)
    if (status == 0) status = c_options_set(self%c, c_text(name), c_text(value))
    call give(status, stat, errmsg)
  end subroutine

  subroutine set_integer(self, name, value, stat, errmsg)
    class(spaid_options), intent(inout) :: self
    character(*), intent(in) :: name
    integer, intent(in) :: value
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call set_text(self, name, decimal(int(value, int64)), stat, errmsg)
  end subroutine

  subroutine set_real(self, name, value, stat, errmsg)
    class(spaid_options), intent(inout) :: self
    character(*), intent(in) :: name
    real(real64), intent(in) :: value
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    character(32) :: text
    write (text, '(es24.16e3)') value
    call set_text(self, name, adjustl(text), stat, errmsg)
  end subroutine

  subroutine set_logical(self, name, value, stat, errmsg)
    class(spaid_options), intent(inout) :: self
    character(*), intent(in) :: name
    logical, intent(in) :: value
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call set_text(self, name, trim(merge('true ', 'false', value)), stat, errmsg)
  end subroutine

  subroutine free_options(self)
    class(spaid_options), intent(inout) :: self
    call c_options_free(self%c)
    self%c = c_null_ptr
  end subroutine

  ! Those of `options`, or the defaults.
  function chosen(options) result(c)
    type(spaid_options), intent(in), optional :: options
    type(c_ptr) :: c
    c = c_null_ptr
    if (present(options)) c = options%c
  end function

  ! Clients

  subroutine open_client(self, options, stat, errmsg)
    class(spaid_client), intent(inout) :: self
    type(spaid_options), intent(in), optional :: options
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call free_client(self)
    call give(c_client_new(chosen(options), self%c), stat, errmsg)
  end subroutine

  subroutine free_client(self)
    class(spaid_client), intent(inout) :: self
    call c_client_free(self%c)
    self%c = c_null_ptr
  end subroutine

  ! Systems

  ! Makes a system of a matrix by rows: n + 1 pointers and the indices, integers of 32 or 64 bits,
  ! and
  ! the values. 1-based, unless `zero_based`; with `duplicates` indices may be unsorted, and entries
  ! given twice are summed.
  subroutine create_csr(self, client, row_ptr, col_idx, values, zero_based, duplicates, stat, &
      errmsg)
    class(spaid_system), intent(inout) :: self
    type(spaid_client), intent(in) :: client
    class(*), intent(in), contiguous, target :: row_ptr(:), col_idx(:)
    real(real64), intent(in), contiguous :: values(:)
    logical, intent(in), optional :: zero_based, duplicates
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call create(self, client, .true., row_ptr, col_idx, values, zero_based, duplicates, stat, &
        errmsg)
  end subroutine

  ! The same by columns.
  subroutine create_csc(self, client, col_ptr, row_idx, values, zero_based, duplicates, stat, &
      errmsg)
    class(spaid_system), intent(inout) :: self
    type(spaid_client), intent(in) :: client
    class(*), intent(in), contiguous, target :: col_ptr(:), row_idx(:)
    real(real64), intent(in), contiguous :: values(:)
    logical, intent(in), optional :: zero_based, duplicates
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call create(self, client, .false., col_ptr, row_idx, values, zero_based, duplicates, stat, &
        errmsg)
  end subroutine

  subroutine create(self, client, by_rows, ptr, idx, values, zero_based, duplicates, stat, errmsg)
    class(spaid_system), intent(inout) :: self
    type(spaid_client), intent(in) :: client
    logical, intent(in) :: by_rows
    class(*), intent(in), contiguous, target :: ptr(:), idx(:)
    real(real64), intent(in), contiguous :: values(:)
    logical, intent(in), optional :: zero_based, duplicates
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: flags, ptr_bits, idx_bits, status
    integer(int64) :: base, last_ptr, last_idx
    type(c_ptr) :: c_ptr_array, c_idx_array
    call free_system(self)
    flags = copy + one_based
    if (present(zero_based)) flags = copy + merge(0_c_int, one_based, zero_based)
    base = iand(flags, one_based)
    if (present(duplicates)) flags = flags + merge(sort_and_sum, 0_c_int, duplicates)
    call look_at(ptr, c_ptr_array, ptr_bits, last_ptr)
    call look_at(idx, c_idx_array, idx_bits, last_idx)
    if (ptr_bits == 0 .or. idx_bits == 0) then
      call refuse('pointers and indices must be of integer(int32) or integer(int64)', stat, errmsg)
      return
    end if
    if (size(idx) /= size(values) .or. last_ptr - base /= size(values)) then
      call refuse('the last pointer less the first, indices and values must be as many, not ' &
          // decimal(last_ptr - base) // ', ' // decimal(size(idx, kind=int64)) // ' and ' &
          // decimal(size(values, kind=int64)), stat, errmsg)
      return
    end if
    self%n = size(ptr, kind=int64) - 1
    self%nnz = size(values, kind=int64)
    if (by_rows) then
      status = c_system_csr(client%c, self%n, c_ptr_array, ptr_bits, c_idx_array, idx_bits, &
          values, &
          flags, self%c)
    else
      status = c_system_csc(client%c, self%n, c_ptr_array, ptr_bits, c_idx_array, idx_bits, &
          values, &
          flags, self%c)
    end if
    call give(status, stat, errmsg)
  end subroutine

  ! Address and bits of an array of integers, and its last; 0 bits of anything else.
  subroutine look_at(array, c, bits, last)
    class(*), intent(in), contiguous, target :: array(:)
    type(c_ptr), intent(out) :: c
    integer(c_int), intent(out) :: bits
    integer(int64), intent(out) :: last
    c = c_null_ptr
    bits = 0
    last = 0
    select type (array)
    type is (integer(int32))
      c = c_loc(array)
      bits = 32
      if (size(array) > 0) last = array(size(array))
    type is (integer(int64))
      c = c_loc(array)
      bits = 64
      if (size(array) > 0) last = array(size(array))
    end select
  end subroutine

  ! Other values on the same pattern.
  subroutine set_values(self, values, stat, errmsg)
    class(spaid_system), intent(inout) :: self
    real(real64), intent(in), contiguous :: values(:)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    if (c_associated(self%c) .and. size(values) /= self%nnz) then
      call refuse('values has ' // decimal(size(values, kind=int64)) // ' numbers, the pattern ' &
          // decimal(self%nnz), stat, errmsg)
      return
    end if
    call give(c_system_set_values(self%c, values), stat, errmsg)
  end subroutine

  ! Vectors that A nearly maps to zero, (n, k), for engine amg; of size 0: none.
  subroutine set_near_null_space(self, vectors, stat, errmsg)
    class(spaid_system), intent(inout) :: self
    real(real64), intent(in), contiguous :: vectors(:, :)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    if (c_associated(self%c) .and. size(vectors) > 0 .and. size(vectors, 1) /= self%n) then
      call refuse('vectors has ' // decimal(size(vectors, 1, kind=int64)) // ' rows, the matrix ' &
          // decimal(self%n), stat, errmsg)
      return
    end if
    call give(c_system_set_near_null_space(self%c, columns_of(vectors), vectors), stat, errmsg)
  end subroutine

  ! The coordinates of the nodes, (n / 2, 2) or (n / 3, 3), for engine amg; of size 0: none.
  subroutine set_coordinates(self, coordinates, stat, errmsg)
    class(spaid_system), intent(inout) :: self
    real(real64), intent(in), contiguous :: coordinates(:, :)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    if (c_associated(self%c) .and. size(coordinates) > 0 .and. size(coordinates) /= self%n) then
      call refuse('coordinates has ' // decimal(size(coordinates, kind=int64)) // ' numbers; a ' &
          // 'node has as many as unknowns, which are ' // decimal(self%n) // ' in all', stat, &
          errmsg)
      return
    end if
    call give(c_system_set_coordinates(self%c, columns_of(coordinates), coordinates), stat, errmsg)
  end subroutine

  pure integer(c_int) function columns_of(array)
    real(real64), intent(in) :: array(:, :)
    columns_of = 0
    if (size(array) > 0) columns_of = int(size(array, 2), c_int)
  end function

  ! Solves A x = b, beginning with `guess`, or with 0. x has the best iterate where stat >= 0.
  subroutine solve_one(self, b, x, options, guess, report, stat, errmsg)
    class(spaid_system), intent(inout) :: self
    real(real64), intent(in), contiguous :: b(:)
    real(real64), intent(inout), contiguous :: x(:)
    type(spaid_options), intent(in), optional :: options
    real(real64), intent(in), contiguous, optional, target :: guess(:)
    type(spaid_report), intent(inout), optional :: report
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: begin
    integer(int64) :: guessed
    begin = c_null_ptr
    guessed = size(b, kind=int64)
    if (present(guess)) then
      begin = c_loc(guess)
      guessed = size(guess, kind=int64)
    end if
    call solve_any(self, b, size(b, kind=int64), x, size(x, kind=int64), 1_c_int, begin, guessed, &
        options, report, stat, errmsg)
  end subroutine

  ! The same for the columns of b, in one call.
  subroutine solve_many(self, b, x, options, guess, report, stat, errmsg)
    class(spaid_system), intent(inout) :: self
    real(real64), intent(in), contiguous :: b(:, :)
    real(real64), intent(inout), contiguous :: x(:, :)
    type(spaid_options), intent(in), optional :: options
    real(real64), intent(in), contiguous, optional, target :: guess(:, :)
    type(spaid_report), intent(inout), optional :: report
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: begin
    integer(int64) :: guessed
    begin = c_null_ptr
    guessed = size(b, kind=int64)
    if (present(guess)) then
      begin = c_loc(guess)
      guessed = size(guess, kind=int64)
    end if
    call solve_any(self, b, size(b, kind=int64), x, size(x, kind=int64), int(size(b, 2), c_int), &
        begin, guessed, options, report, stat, errmsg)
  end subroutine

  subroutine solve_any(self, b, given, x, wanted, count, guess, guessed, options, report, stat, &
      errmsg)
    class(spaid_system), intent(inout) :: self
    integer(int64), intent(in) :: given, wanted, guessed
    real(real64), intent(in) :: b(*)
    real(real64), intent(inout) :: x(*)
    integer(c_int), intent(in) :: count
    type(c_ptr), intent(in) :: guess
    type(spaid_options), intent(in), optional :: options
    type(spaid_report), intent(inout), optional, target :: report
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: told
    if (c_associated(self%c) .and. (given /= self%n * count .or. wanted /= given .or. &
        guessed /= given)) then
      call refuse('b, x and guess must have columns of n = ' // decimal(self%n) // ' numbers, ' &
          // 'as many of each; they have ' // decimal(given) // ', ' // decimal(wanted) // ' and ' &
          // decimal(guessed) // ' numbers', stat, errmsg)
      return
    end if
    told = c_null_ptr
    if (present(report)) then
      call free_report(report)
      told = c_loc(report%c)
    end if
    call give(c_solve(self%c, chosen(options), count, b, guess, x, told), stat, errmsg)
  end subroutine

  ! Builds M, brings it here, and lets the next solve with these options begin with it.
  subroutine build(self, m, options, report, stat, errmsg)
    class(spaid_system), intent(inout) :: self
    type(spaid_preconditioner), intent(inout) :: m
    type(spaid_options), intent(in), optional :: options
    type(spaid_report), intent(inout), optional, target :: report
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: told
    told = c_null_ptr
    if (present(report)) then
      call free_report(report)
      told = c_loc(report%c)
    end if
    call free_preconditioner(m)
    call give(c_build(self%c, chosen(options), m%c, told), stat, errmsg)
  end subroutine

  ! Ends the call that another thread has running on this system.
  subroutine cancel(self, stat, errmsg)
    class(spaid_system), intent(in) :: self
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call give(c_cancel(self%c), stat, errmsg)
  end subroutine

  subroutine free_system(self)
    class(spaid_system), intent(inout) :: self
    call c_system_free(self%c)
    self%c = c_null_ptr
  end subroutine

  ! Preconditioners

  ! Gives M, or G where is_factor, by columns, 1-based.
  subroutine get_csc(self, col_ptr, row_idx, values, is_factor, stat, errmsg)
    class(spaid_preconditioner), intent(in) :: self
    integer(int64), allocatable, intent(out) :: col_ptr(:)
    integer(int32), allocatable, intent(out) :: row_idx(:)
    real(real64), allocatable, intent(out) :: values(:)
    logical, intent(out), optional :: is_factor
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_long) :: n
    integer(c_int) :: status, factor
    type(c_ptr) :: ptr, idx, entries
    integer(c_long), pointer :: c_col_ptr(:)
    integer(c_int), pointer :: c_row_idx(:)
    real(c_double), pointer :: c_values(:)
    status = c_preconditioner_csc(self%c, n, ptr, idx, entries, factor)
    if (status == 0) then
      call c_f_pointer(ptr, c_col_ptr, [n + 1])
      call c_f_pointer(idx, c_row_idx, [c_col_ptr(n + 1)])
      call c_f_pointer(entries, c_values, [c_col_ptr(n + 1)])
      col_ptr = c_col_ptr + 1
      row_idx = c_row_idx + 1
      values = c_values
      if (present(is_factor)) is_factor = factor /= 0
    end if
    call give(status, stat, errmsg)
  end subroutine

  ! y = M x, or by `operation`: spaid_m_transposed, spaid_g, spaid_g_transposed.
  subroutine apply_one(self, x, y, operation, stat, errmsg)
    class(spaid_preconditioner), intent(in) :: self
    real(real64), intent(in), contiguous :: x(:)
    real(real64), intent(inout), contiguous :: y(:)
    integer, intent(in), optional :: operation
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call apply_any(self, x, size(x, kind=int64), y, size(y, kind=int64), 1_c_int, operation, stat, &
        errmsg)
  end subroutine

  ! The same for the columns of x.
  subroutine apply_many(self, x, y, operation, stat, errmsg)
    class(spaid_preconditioner), intent(in) :: self
    real(real64), intent(in), contiguous :: x(:, :)
    real(real64), intent(inout), contiguous :: y(:, :)
    integer, intent(in), optional :: operation
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call apply_any(self, x, size(x, kind=int64), y, size(y, kind=int64), int(size(x, 2), c_int), &
        operation, stat, errmsg)
  end subroutine

  subroutine apply_any(self, x, given, y, wanted, count, operation, stat, errmsg)
    class(spaid_preconditioner), intent(in) :: self
    integer(int64), intent(in) :: given, wanted
    real(real64), intent(in) :: x(*)
    real(real64), intent(inout) :: y(*)
    integer(c_int), intent(in) :: count
    integer, intent(in), optional :: operation
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: what, status, factor
    integer(c_long) :: n
    type(c_ptr) :: ptr, idx, values
    what = spaid_m
    if (present(operation)) what = int(operation, c_int)
    status = c_preconditioner_csc(self%c, n, ptr, idx, values, factor)
    if (status == 0 .and. (given /= n * count .or. wanted /= given)) then
      call refuse('x and y need columns of n = ' // decimal(n) // ' numbers; they have ' &
          // decimal(given) // ' and ' // decimal(wanted) // ' numbers', stat, errmsg)
      return
    end if
    if (status == 0) status = c_apply(self%c, what, count, x, y)
    call give(status, stat, errmsg)
  end subroutine

  subroutine free_preconditioner(self)
    class(spaid_preconditioner), intent(inout) :: self
    call c_preconditioner_free(self%c)
    self%c = c_null_ptr
  end subroutine

  ! Reports. A right-hand side or a name that there is not: < 0, or ''.

  integer function outcome(self, rhs)
    class(spaid_report), intent(in) :: self
    integer, intent(in) :: rhs
    outcome = c_report_outcome(self%c, int(rhs - 1, c_int))
  end function

  integer(int64) function iterations(self, rhs)
    class(spaid_report), intent(in) :: self
    integer, intent(in) :: rhs
    iterations = c_report_iterations(self%c, int(rhs - 1, c_int))
  end function

  real(real64) function residual(self, rhs)
    class(spaid_report), intent(in) :: self
    integer, intent(in) :: rhs
    residual = c_report_residual(self%c, int(rhs - 1, c_int))
  end function

  real(real64) function number(self, name)
    class(spaid_report), intent(in) :: self
    character(*), intent(in) :: name
    if (c_report_number(self%c, c_text(name), number) /= 0) number = -huge(number)
  end function

  function text(self, name) result(value)
    class(spaid_report), intent(in) :: self
    character(*), intent(in) :: name
    character(:), allocatable :: value
    type(c_ptr) :: c
    value = ''
    if (c_report_text(self%c, c_text(name), c) == 0) value = fortran_text(c)
  end function

  subroutine free_report(self)
    class(spaid_report), intent(inout) :: self
    call c_report_free(self%c)
    self%c = c_null_ptr
  end subroutine

end module spaid
