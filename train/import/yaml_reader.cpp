#include "train/import/yaml_reader.h"
