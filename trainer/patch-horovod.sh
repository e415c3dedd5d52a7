#!/bin/sh
# patch-horovod.sh SOURCE_DIR TORCH_VERSION
# The smallest edits that let Horovod 0.28.1's release build with current PyTorch, Python, gcc and CMake.
# Every edit is looked for first: a release that no longer holds the text stops here, not in the compiler.
set -eu
source_dir=$1
torch_version=$2
cd "$source_dir"

edit() { # edit FILE FIXED_TEXT_IT_MUST_HOLD SED_SCRIPT
    if ! grep -qF -- "$2" "$1"; then
        echo "patch-horovod.sh: $1 does not hold '$2': is this Horovod 0.28.1?" >&2
        exit 1
    fi
    sed -i -e "$3" "$1"
}

# PyTorch's headers ask for C++17 since 2.1 and for C++20 since 2.14.
case $torch_version in
    1.* | 2.0.*) standard=14 ;;
    2.[1-9].* | 2.1[0-3].*) standard=17 ;;
    *) standard=20 ;;
esac
for file in CMakeLists.txt horovod/torch/CMakeLists.txt; do
    edit "$file" 'CMAKE_CXX_STANDARD 14' "s/CMAKE_CXX_STANDARD 14/CMAKE_CXX_STANDARD $standard/"
done

# Python 3.12 dropped distutils; without the first of these horovodrun does not even start.
edit horovod/runner/js_run.py 'from distutils.spawn import find_executable' \
    's/from distutils.spawn import find_executable/from shutil import which as find_executable/'
edit horovod/torch/CMakeLists.txt 'from distutils.sysconfig import get_python_inc' \
    "s/from distutils.sysconfig import get_python_inc; print(get_python_inc())/import sysconfig; print(sysconfig.get_path('include'))/"

# gcc 13 no longer includes these by accident.
edit horovod/common/common.h '#include <memory>' 's/#include <memory>/#include <memory>\n#include <stdexcept>/'
edit horovod/common/group_table.h '#include <queue>' 's/#include <queue>/#include <queue>\n#include <string>/'

# gcc 14 rejects an assignment to a const member, in an operator of the bundled flatbuffers that nothing uses.
edit third_party/flatbuffers/include/flatbuffers/stl_emulation.h 'FLATBUFFERS_CONSTEXPR_CPP14 span &operator=' \
    '/FLATBUFFERS_CONSTEXPR_CPP14 span &operator=/,/^  }/d'

# CMake 4 refuses projects that claim to work with 2.8.
edit third_party/gloo/CMakeLists.txt 'VERSION 2.8.12' '1s/VERSION 2.8.12/VERSION 3.13/'
