// Fuzz targets of what a tokenizer does before it looks for tokens: patterns, pieces, normal forms.
#include <cstddef>
#include <optional>
#include <vector>

#include "core/utf8.h"
#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer/unicode.h"
#include "tests/fuzz/fuzz_target.h"

namespace trident::fuzz {

namespace {

using Piece = PieceScanner::Piece;

std::string readable(std::string_view text) {
  std::string valid;
  replace_ill_formed(text, &valid);
  return valid;
}

// Nothing where the text takes too many steps.
std::optional<std::vector<Piece>> pieces_of(const PieceScanner& scanner, std::string_view text) {
  std::vector<Piece> all;
  if (!accepts([&] { scanner.cut(text, [&](std::span<const Piece> some) { all.insert(all.end(), some.begin(), some.end()); }); }))
    return std::nullopt;
  std::size_t begin = 0;
  for (const Piece& piece : all) {
    require(piece.end > begin && piece.end <= text.size(), "a piece from {} to {} of {} bytes", begin, piece.end, text.size());
    require(piece.end == text.size() || (static_cast<unsigned char>(text[piece.end]) & 0xC0) != 0x80,
            "a piece that ends inside a character, at {}", piece.end);
    begin = piece.end;
  }
  require(begin == text.size(), "pieces of {} bytes of {}", begin, text.size());
  return all;
}

}  // namespace

// A pattern, a zero byte and a text.
bool pattern(std::string_view input) {
  const std::vector<std::string_view> parts = parts_of_input(input, 2);
  const std::string text = readable(parts[1]);
  bool accepted = false;
  for (const PatternDialect dialect : {PatternDialect::kOniguruma, PatternDialect::kFancyRegex}) {
    std::unique_ptr<const PieceScanner> scanner;
    if (!accepts([&] { scanner = piece_scanner(parts[0], "t.json", dialect); })) continue;
    accepted = true;
    pieces_of(*scanner, text);
  }
  return accepted;
}

// A text: what is written by hand cuts it as the matcher does.
bool pieces(std::string_view input) {
  struct Pair {
    std::unique_ptr<const PieceScanner> by_hand, matcher;
  };
  static const std::vector<Pair> pairs = [] {
    std::vector<Pair> all;
    for (const KnownPattern& known : known_patterns()) {
      const std::string in_group = fmt::format("(?:{})", known.text);
      all.push_back({piece_scanner(known.text, "t", known.dialect), piece_scanner(in_group, "t", known.dialect)});
    }
    return all;
  }();
  const std::string text = readable(input);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto a = pieces_of(*pairs[i].by_hand, text), b = pieces_of(*pairs[i].matcher, text);
    const std::string_view name = known_patterns()[i].name;
    require(a && b && a->size() == b->size(), "{}: another number of pieces", name);
    for (std::size_t k = 0; k < a->size(); ++k)
      require((*a)[k].end == (*b)[k].end && (*a)[k].matched == (*b)[k].matched, "{}: piece {} ends at {} and {}", name, k,
              (*a)[k].end, (*b)[k].end);
  }
  return true;
}

// A text: each form of a form is what the rules of the forms say.
bool normal_forms(std::string_view input) {
  const std::string text = readable(input);
  const auto formed = [](std::string_view from, NormalForm form) {
    std::string buffer;
    std::string to(normalized(from, form, &buffer));
    require(valid_prefix(to) == to.size(), "a form that is no UTF-8");
    return to;
  };
  const auto same = [](const std::string& a, const std::string& b, std::string_view what) { require(a == b, "{} differ", what); };
  const std::string c = formed(text, NormalForm::kNfc), d = formed(text, NormalForm::kNfd), kc = formed(text, NormalForm::kNfkc),
                    kd = formed(text, NormalForm::kNfkd);
  same(formed(c, NormalForm::kNfc), c, "NFC and its NFC");
  same(formed(d, NormalForm::kNfc), c, "NFC and NFC of NFD");
  same(formed(c, NormalForm::kNfd), d, "NFD and NFD of NFC");
  same(formed(d, NormalForm::kNfd), d, "NFD and its NFD");
  same(formed(kd, NormalForm::kNfkc), kc, "NFKC and NFKC of NFKD");
  same(formed(kd, NormalForm::kNfc), kc, "NFKC and NFC of NFKD");
  same(formed(c, NormalForm::kNfkd), kd, "NFKD and NFKD of NFC");
  std::string buffer, again;
  const std::string lower(lowercased(text, &buffer));
  same(std::string(lowercased(lower, &again)), lower, "lower case and its lower case");
  return true;
}

}  // namespace trident::fuzz
