#!/usr/bin/env bash
# Calls the compiler through ccache, so that copies of a tree share objects: ccache.sh TREE COMPILER
# ARGUMENT... ccache makes paths below TREE relative; not the one of the precompiled header, after -Xclang.
export CCACHE_BASEDIR=$1 CCACHE_NOHASHDIR=true CCACHE_PCH_EXTSUM=true
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
shift
if [[ " $* " == *" -march=native "* ]]; then # another processor, other objects
    CCACHE_NAMESPACE=$(grep -m 1 '^flags' /proc/cpuinfo 2>/dev/null | cksum | tr -d ' ')
    export CCACHE_NAMESPACE
fi
[[ " $* " == *" -emit-pch "* ]] || exec ccache "${@/#"$PWD/"/}"

# Clang's precompiled header holds the paths of its tree, so each tree compiles its own. To ccache it is equal to
# another one if the command and the contents of all headers are: what this checksum says.
"$@" || exit
while [[ $# -gt 0 ]]; do
    case $1 in
        -o) output=$2 && shift ;;
        -MF) dependencies=$2 && shift ;;
        -I* | */*) ;; # paths
        *) options+=" $1" ;;
    esac
    shift
done
{
    echo "$options"
    sed -e 's/^[^ ]*://' -e 's/\\$//' "$dependencies" | xargs cat
} | sha256sum >"$output.sum"
