// The error of a rank that ends because another one did.
#pragma once

#include "core/check.h"

namespace trident {

// Thrown where a rank notices that the world has failed through another rank, so that reports can tell cause from consequence.
class PeerFailure : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

}  // namespace trident
