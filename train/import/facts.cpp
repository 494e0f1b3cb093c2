#include "train/import/facts.h"
