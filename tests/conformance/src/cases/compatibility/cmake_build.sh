# A C++ project by cmake, with its tests.
cat > CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.16)
project(greet CXX)
add_library(greet SHARED greet.cpp)
add_executable(app main.cpp)
target_link_libraries(app greet)
enable_testing()
add_test(NAME says_hello COMMAND app)
END
printf '#include <string>\nstd::string greet() { return "hello from cmake"; }\n' > greet.cpp
printf '#include <iostream>\n#include <string>\nstd::string greet();\nint main() { std::cout << greet() << std::endl; }\n' > main.cpp
cmake -S . -B build > cmake.log
cmake --build build -j2 > build.log
build/app
(cd build && ctest | grep -o '100% tests passed, 0 tests failed out of 1')
