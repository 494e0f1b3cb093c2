#include "train/forecast/run_study.h"

#include "plan/gpu_prices.h"
#include "plan/price_book.h"
#include "train/forecast/study.h"

namespace trident {

StudyResult run_study_here(const StudySpec& spec, bool executes) {
  if (spec.cluster.empty()) throw ConfigError("trident study: name the GPUs with --cluster, such as --cluster h100_sxm_ndr");
  if (executes) throw ConfigError("--run: this cluster is not this machine; leave out --run or --cluster");
  const PriceBook book = shipped_price_book();
  const Cluster cluster = find_cluster(book, spec.cluster);
  const GpuPrices prices(cluster.gpu, cluster.links);
  return run_study(spec, hardware_of(cluster, prices));
}

}  // namespace trident
