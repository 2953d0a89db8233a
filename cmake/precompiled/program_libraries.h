// What the command line includes most (cmake/precompile.cmake).
#pragma once

#include <CLI/CLI.hpp>

#include "libraries.h"
