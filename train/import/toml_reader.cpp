#include "train/import/toml_reader.h"
