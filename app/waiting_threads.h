// Compute threads that wait are to spin for microseconds, not for milliseconds, and to sleep then: ranks share cores with each
// other and with their own communication.
#pragma once

namespace trident {

// The OpenMP library reads how its threads wait when the program is loaded, before main(). So this starts the program anew in the
// same process, once, with OMP_WAIT_POLICY=passive and a small GOMP_SPINCOUNT, and does not return then. Returns where the
// environment says already how threads wait (by either variable), where `argv` names a subcommand that computes nothing with a
// model, and where the program cannot be started anew: then threads spin for a while as they would have, and everything else is the
// same. To be called before anything else; docs/decisions/0011.
void reexec_with_passive_omp(char** argv);

}  // namespace trident
