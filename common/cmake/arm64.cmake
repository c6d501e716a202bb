# Toolchain file that compiles for 64-bit Arm on a computer of another kind (tests/checks/check_arm64.sh):
# with Debian's g++-aarch64-linux-gnu, or with Clang and its headers and libraries. What is built runs in QEMU.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
if(DEFINED ENV{CXX} AND "$ENV{CXX}" MATCHES clang)
  set(CMAKE_CXX_COMPILER $ENV{CXX})
  set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
else()
  set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
endif()

# The libraries of this folder only; programs of this machine.
set(CMAKE_FIND_ROOT_PATH $ENV{ARM64_LIBRARIES} /usr/aarch64-linux-gnu)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(mode LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${mode} ONLY)
endforeach()
set(libraries $ENV{ARM64_LIBRARIES}/usr/lib/aarch64-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-L${libraries} -Wl,-rpath-link,${libraries}")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L $ENV{ARM64_LIBRARIES})
