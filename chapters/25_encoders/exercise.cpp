#include "chapters/25_encoders/exercise.hpp"
