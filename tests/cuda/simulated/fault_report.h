// Words for a segmentation fault in or beside memory of the simulation.
#pragma once

namespace trident::simulated {

// From the first call on, such a fault is described before the program ends. Other faults are left to who handled them before.
void report_faults();

}  // namespace trident::simulated
