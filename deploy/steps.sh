# Sourced by deploy/demo and tests/run: steps that are one line when they go well and tell exactly
# what failed when they do not. Not a program.
#
#   step NAME LOG COMMAND...   runs COMMAND with its output in LOG; prints "NAME  SECONDS s"
#
# The caller has `set -euo pipefail` and stands in the repository's root.

# Milliseconds since some fixed time.
now_ms() { echo $(($(date +%s%N) / 1000000)); }

seconds_since() {
  local ms=$(($(now_ms) - $1))
  printf '%d.%d s' $((ms / 1000)) $((ms % 1000 / 100))
}

step() {
  local name=$1 log=$2
  shift 2
  local begin
  begin=$(now_ms)
  printf '%-10s ' "$name"
  mkdir -p "$(dirname "$log")"
  local status=0
  "$@" >"$log" 2>&1 || status=$?
  if [ $status -eq 0 ]; then
    printf '%s\n' "$(seconds_since "$begin")"
    return 0
  fi
  printf 'FAILED after %s (exit %d): %s\n' "$(seconds_since "$begin")" $status "$*"
  tail -n 200 "$log"
  printf '%s: the step "%s" failed; its whole output is in %s\n' "$0" "$name" "$log"
  return $status
}

# configure_preset PRESET: CMake, the first time only; Ninja runs it again where a CMake file changed.
configure_preset() {
  local build=build/$1
  [ -f "$build/build.ninja" ] && return 0
  # Device code has to compile where CI has no GPU, and never runs there: fast, not fast code.
  if [ "${CI:-}" = true ] && ! gpu_answers && nvcc_knows --Ofast-compile; then
    CUDAFLAGS="${CUDAFLAGS:-} -Ofc=max" cmake --preset "$1"
  else
    cmake --preset "$1"
  fi
}

# gpu_answers: whether a driver lists a GPU on this machine.
gpu_answers() { nvidia-smi -L >/dev/null 2>&1; }

# nvcc_knows OPTION: whether there is an nvcc, and one that has it.
nvcc_knows() {
  (
    set +o pipefail
    PATH=$PATH:/usr/local/cuda/bin
    nvcc --help 2>/dev/null | grep -q -e "$1"
  )
}

# has_target PRESET TARGET: whether the configured build knows it.
has_target() { ninja -C "build/$1" -t query "$2" >/dev/null 2>&1; }

# build_preset PRESET [TARGET...]: Ninja, saying only what fails.
build_preset() {
  local preset=$1
  shift
  local targets=()
  [ $# -eq 0 ] || targets=(--target "$@")
  cmake --build "build/$preset" --parallel "$(nproc)" "${targets[@]}" -- --quiet
}
