// glovebox run examples/hello.cpp Ada
#include <filesystem>
#include <iostream>
#include <string>

int main(int argc, char **argv) {
    std::string who = argc > 1 ? argv[1] : "world";
    std::cout << "hello, " << who << "! I am in " << std::filesystem::current_path().string() << "\n";
}
