#include "train/import/shell_reader.h"
