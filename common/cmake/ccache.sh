#!/usr/bin/env bash
# Calls the compiler through ccache, so that copies of a tree share objects: ccache.sh TREE COMPILER
# ARGUMENT... ccache makes paths below TREE relative; not the one of the precompiled header, after -Xclang.
export CCACHE_BASEDIR=$1 CCACHE_NOHASHDIR=true
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
shift
exec ccache "${@/#"$PWD/"/}"
