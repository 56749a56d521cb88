#!/usr/bin/env bash
# Installs everything that Aeshna needs to be built and tested on Debian 12, Debian 13 or Ubuntu 24.04+.
#
#   scripts/setup.sh            install what is missing; quiet and quick when nothing is
#   scripts/setup.sh --check    only say what is missing (exit status 1 if anything is)
#
# Debian 12 is too old for g++ 14, CMake 3.28 and the Vulkan tools. There the script adds trixie and
# trixie-backports as sources with a priority so low that no package moves to them by itself, and takes only
# the packages named below (with what they depend on) from them. On Debian 13 only Mesa comes from
# trixie-backports, because lavapipe exposes cooperative matrices from Mesa 26 on.
set -euo pipefail
root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
check_only=0
[[ ${1:-} == --check ]] && check_only=1

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# Package and the oldest version that will do (0: any).
required=(
  "g++-14 0" "cmake 3.28" "ninja-build 0" "ccache 0" "pkgconf 0" "python3 0"
  "glslang-dev 14" "glslang-tools 14" "spirv-tools 2023.3" "spirv-headers 0"
  "libvulkan-dev 1.3.275" "libvulkan1 0" "vulkan-validationlayers 1.3.275" "vulkan-tools 0"
  "libvulkan-volk-dev 0" "libvulkan-memory-allocator-dev 0"
  "nlohmann-json3-dev 0" "libcli11-dev 0" "libboost-dev 1.83" "zlib1g-dev 0"
  "libprotobuf-dev 3.12" "protobuf-compiler 3.12"
  "libgtest-dev 0" "libgmock-dev 0"
)
# Debian only: Ubuntu 24.04 keeps its own Mesa; the cooperative-matrix tests are skipped there.
mesa_wanted="26"

if [[ ! -r /etc/os-release ]] || ! command -v dpkg-query >/dev/null; then
  die "this script knows Debian and Ubuntu only; docs/dependencies.md lists what to install elsewhere"
fi
distribution=$(. /etc/os-release && echo "$ID")
case $distribution in
  debian) required+=("mesa-vulkan-drivers $mesa_wanted") ;;
  *) required+=("mesa-vulkan-drivers 0") ;;
esac

# ---- what is missing -------------------------------------------------------------------------------------
missing=()
find_missing() {
  local -A have=()
  local entry name minimum status package version
  while IFS=' ' read -r status package version; do
    [[ $status == installed ]] && have[$package]=$version
  done < <(dpkg-query -W -f='${db:Status-Status} ${Package} ${Version}\n' "${required[@]%% *}" 2>/dev/null || true)
  missing=()
  for entry in "${required[@]}"; do
    name=${entry%% *} minimum=${entry##* }
    version=${have[$name]:-}
    if [[ -z $version ]]; then
      missing+=("$name")
    elif [[ $minimum != 0 ]] && ! dpkg --compare-versions "${version#*:}" ge "$minimum"; then
      missing+=("$name")
    fi
  done
}

# The interoperability test of checkpoints runs the Python packages safetensors and numpy.
python_dir=$root_dir/.deps/python
python_ready() {
  local python
  for python in "$python_dir/bin/python" /usr/bin/python3; do
    if [[ -x $python ]] && "$python" -c 'import importlib.util as u, sys
sys.exit(not all(u.find_spec(m) for m in ("numpy", "safetensors")))' 2>/dev/null; then
      return 0
    fi
  done
  return 1
}

# ONNX's own test cases, data only. Debian's are of 1.17; elsewhere any version will do.
onnx_data_ready() {
  local version
  version=$(dpkg-query -W -f='${db:Status-Status} ${Version}' libonnx-testdata 2>/dev/null) && [[ $version == installed* ]] || return 1
  [[ $distribution != debian ]] || dpkg --compare-versions "${version#* }" ge 1.17
}

find_missing
python_missing=0
python_ready || python_missing=1
onnx_data_missing=0
onnx_data_ready || onnx_data_missing=1
if ((check_only)); then
  [[ ${#missing[@]} -gt 0 ]] && say "missing or too old: ${missing[*]}"
  ((python_missing)) && say "missing (one test needs it): the Python packages safetensors and numpy"
  ((onnx_data_missing)) && say "missing (the tests of the ONNX importer need it): libonnx-testdata"
  ((${#missing[@]} == 0 && python_missing == 0 && onnx_data_missing == 0)) && say "everything is there"
  exit $((${#missing[@]} > 0))
fi
if ((${#missing[@]} == 0 && python_missing == 0 && onnx_data_missing == 0)); then
  exit 0
fi

# ---- Debian and Ubuntu packages --------------------------------------------------------------------------
as_root=()
need_root() {
  ((EUID == 0)) && return
  command -v sudo >/dev/null || die "these packages are missing: ${missing[*]}. Run this script as root, or install sudo"
  as_root=(sudo)
}
apt_get() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o APT::Color=0 "$@"; }
install_log=
apt_install() { # quiet; the whole log is shown if it fails
  if ! apt_get install -y --no-install-recommends -o Dpkg::Options::=--force-confold "$@" >"$install_log" 2>&1; then
    cat "$install_log" >&2
    die "apt-get install failed for: $*"
  fi
  sed -n -e 's/^\([0-9]* upgraded, .*\)$/setup:   \1/p' "$install_log"
  local removed
  removed=$(sed -n "s/^Removing \([a-z][^ ]*\) (.*/\1/p" "$install_log" | tr '\n' ' ')
  [[ -z $removed ]] || say "  removed (most by a newer version under a new name): $removed"
}
suite_known() { # is there a source of this code name?
  local suites
  suites=$(apt-get indextargets --format '/$(CODENAME)/$(RELEASE)/' 'Created-By: Packages' 2>/dev/null) || true
  [[ $suites == *"/$1/"* ]]
}
add_suites() { # $@: suites to add, with low priorities
  # The mirror is the one that this machine already uses.
  local mirror suite
  mirror=$(apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    awk '$1 == "Debian" && $2 ~ /^[a-z]+$/ && !found++ { print $NF }')
  mirror=${mirror:-http://deb.debian.org/debian/}
  "${as_root[@]}" tee /etc/apt/sources.list.d/aeshna-trixie.sources >/dev/null <<EOF
# Written by Aeshna's scripts/setup.sh. The priorities are in /etc/apt/preferences.d/aeshna-trixie.
Types: deb
URIs: $mirror
Suites: $*
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
EOF
  "${as_root[@]}" tee /etc/apt/preferences.d/aeshna-trixie >/dev/null <<EOF
# Written by Aeshna's scripts/setup.sh: nothing comes from these suites unless it is asked for by name.
$(for suite in "$@"; do
    priority=100
    [[ $suite == *-backports ]] && priority=99
    printf 'Package: *\nPin: release n=%s\nPin-Priority: %s\n\n' "$suite" "$priority"
  done)
EOF
  say "added $* from $mirror (/etc/apt/sources.list.d/aeshna-trixie.sources), pinned low"
}

mixed=0 # 1: Debian 12, which takes named packages from trixie
detect_mixed() { # asks apt, since a package of trixie's changes /etc/os-release
  mixed=0
  if [[ $distribution == debian ]] && suite_known bookworm; then mixed=1; fi
}
detect_mixed

if ((${#missing[@]})); then
  need_root
  install_log=$(mktemp)
  trap 'rm -f "$install_log"' EXIT
  say "missing or too old: ${missing[*]}"
  apt_get update >"$install_log" 2>&1 || { cat "$install_log" >&2; say "apt-get update failed; going on with the lists at hand"; }
  detect_mixed
  if [[ $distribution == debian ]]; then
    new_suites=()
    # A release newer than trixie needs neither.
    if ((mixed)); then
      suite_known trixie || new_suites+=(trixie trixie-backports)
    elif suite_known trixie && ! suite_known trixie-backports; then
      new_suites+=(trixie-backports)
    fi
    if ((${#new_suites[@]})); then
      add_suites "${new_suites[@]}"
      apt_get update >"$install_log" 2>&1 || { cat "$install_log" >&2; die "apt-get update failed with the new sources"; }
    fi
  fi

  # What Debian 12 itself has in a good enough version is taken from there.
  from_trixie=(g++-14 cmake glslang-dev glslang-tools spirv-tools spirv-headers libvulkan-dev libvulkan1
    vulkan-validationlayers vulkan-tools libvulkan-volk-dev libvulkan-memory-allocator-dev libboost-dev)
  plain=() trixie=()
  for name in "${missing[@]}"; do
    if [[ $name == mesa-vulkan-drivers ]] && suite_known trixie-backports; then
      trixie+=("mesa-vulkan-drivers/trixie-backports")
    elif ((mixed)) && [[ " ${from_trixie[*]} " == *" $name "* ]]; then
      trixie+=("$name")
    else
      plain+=("$name")
    fi
  done
  if ((${#plain[@]})); then
    say "installing: ${plain[*]}"
    apt_install "${plain[@]}"
  fi
  if ((${#trixie[@]})); then
    say "installing: ${trixie[*]} (with what they need from trixie)"
    apt_install -t trixie "${trixie[@]}"
  fi
  find_missing
  ((${#missing[@]} == 0)) || die "still missing or too old: ${missing[*]}. docs/dependencies.md says what each is for"
  say "all packages are there"
fi

# ---- ONNX's test cases -------------------------------------------------------------------------------------
if ((onnx_data_missing)); then
  need_root
  from=()
  ((mixed)) && from=(-t trixie)
  if apt_get install -y --no-install-recommends "${from[@]}" libonnx-testdata >/dev/null 2>&1; then
    say "installed libonnx-testdata (for the tests of the ONNX importer)"
  else
    say "note: libonnx-testdata is not to be had here; ONNX's own test cases will be skipped"
  fi
fi

# ---- Python packages for one interoperability test (nothing else of Aeshna uses them) ----------------------
if ((python_missing && ! mixed)); then
  need_root
  if apt_get install -y --no-install-recommends python3-safetensors python3-numpy >/dev/null 2>&1; then
    say "installed python3-safetensors and python3-numpy (for one test)"
    python_missing=0
  fi
elif ((python_missing)); then
  # Installing them from trixie would replace Debian 12's Python: unpack that Python and the two packages beside it.
  unpacked=$python_dir/unpacked
  downloads=$(mktemp -d)
  if (
    cd "$downloads"
    for package in libpython3.13-minimal python3.13-minimal libpython3.13-stdlib python3-numpy python3-safetensors \
      libblas3 liblapack3 libgfortran5 libquadmath0 libffi8; do
      # libquadmath0 exists on few architectures only
      apt-get -q download "$package/trixie" >/dev/null 2>&1 || [[ $package == libquadmath0 ]] || exit 1
    done
    rm -rf "$python_dir"
    mkdir -p "$unpacked" "$python_dir/bin"
    for package in *.deb; do dpkg-deb -x "$package" "$unpacked" || exit 1; done
    cat >"$python_dir/bin/python" <<'EOF'
#!/bin/sh
# Debian trixie's Python with numpy and safetensors, unpacked by scripts/setup.sh.
here=$(cd "$(dirname "$0")/../unpacked" && pwd)
libraries=$(echo "$here"/usr/lib/*-linux-gnu*)
export LD_LIBRARY_PATH="$libraries:$libraries/blas:$libraries/lapack"
export PYTHONPATH="$here/usr/lib/python3/dist-packages"
exec "$here/usr/bin/python3.13" "$@"
EOF
    chmod +x "$python_dir/bin/python"
  ) && python_ready; then
    say "unpacked Python 3.13 with numpy and safetensors into .deps/python (for one test; 63 MB)"
    python_missing=0
  else
    rm -rf "$python_dir"
  fi
  rm -rf "$downloads"
fi
if ((python_missing)); then
  say "note: the Python packages safetensors and numpy are not to be had here; the test that needs them will be skipped"
fi
