#include "planner/price/price_book.h"

namespace trident {

PriceBook shipped_price_book() {
  PriceBook book;
  for (const ShippedText& file : shipped_hardware_texts())
    book.hardware.push_back(gpu_rates_from_json(parse_json(file.text, file.name), file.name));
  for (const ShippedText& file : shipped_cluster_texts())
    book.clusters.push_back(cluster_from_json(book, parse_json(file.text, file.name), std::string(file.name)));
  return book;
}

}  // namespace trident
