#include "train/import/foreign_input.h"
