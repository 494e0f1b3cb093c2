#include "train/import/import.h"
