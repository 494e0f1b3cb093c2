// Tests that a script's commands are read as a shell reads them, and that nothing is executed.
#include "import/shell_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/check.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// "a|b c": the words of all commands, and of a word without a value "??"; "?" ends one in doubt.
std::string words_in(std::string_view script, const ShellSources& sources = {}) {
  std::string all;
  for (const ShellCommand& command : read_shell(script, "run.sh", {}, {}, nullptr, sources)) {
    all += all.empty() ? "" : "\n";
    for (std::size_t i = 0; i < command.words.size(); ++i)
      all += (i == 0 ? "" : "|") + (command.words[i].unknown.empty() ? command.words[i].text : "??");
    if (!command.doubt.empty()) all += " ?";
  }
  return all;
}
std::string refused_shell(std::string_view script) {
  try {
    return "accepted: " + words_in(script);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ShellReader, QuotesEscapesAndContinuedLinesMakeWords) {
  EXPECT_EQ(words_in("a 'b c' \"d e\" f\\ g h\\\ni \"\" j''k"), "a|b c|d e|f g|hi||jk");
  EXPECT_EQ(words_in("a \"\\$x \\a \\\"\" '\\' \\\\ $'b\\'c' d"), "a|$x \\a \"|\\|\\|??|d");
  EXPECT_EQ(words_in("a \\\n  b # c 'd\n# e\nf#g"), "a|b\nf#g") << "a comment begins a word";
  EXPECT_EQ(words_in("a;b&&c||d|e&\nf\r\n"), "a\nb\nc\ne\nf");
  EXPECT_EQ(words_in("a \\\r\n  b\r\ncat <<E\r\nx\r\nE\r\nc"), "a|b\ncat\nc") << "Windows' line ends";
  EXPECT_EQ(words_in("a $'b\\tc' \\\n"), "a|??") << "a tab there, and no t";
  EXPECT_EQ(words_in("a\n\\\n"), "a");
  EXPECT_EQ(words_in("a > log 2>&1 <in &>x b <<< text 3>y"), "a|b");
  EXPECT_EQ(words_in("cat <<EOF > ds.json\n{\"a\": 'b'\nEOF\nrun\ncat <<-'E F'\n\t\tx\n\tE F\nend"), "cat\nrun\ncat\nend");
}

TEST(ShellReader, VariablesAreReplacedAndSplit) {
  EXPECT_EQ(words_in("A='b  c'\nrun $A \"$A\" ${A}d \"x$A\""), "run|b|c|b  c|b|cd|xb  c");
  EXPECT_EQ(words_in("A=1 B=2; A+=0; run $A$B ${C:-d e} \"${C:-d e}\" ${A:-x} ${A:+y} ${C:+z}"), "run|102|d|e|d e|10|y");
  EXPECT_EQ(words_in("A=1\nA=2 run $A\nrun $A"), "run|1\nrun|1") << "what stands before a command is the command's alone";
  EXPECT_EQ(words_in("export A=1 B='2 3'\nrun $A \"$B\"; N=${N:=8}; run $N"), "export\nrun|1|2 3\nrun|8");
  EXPECT_EQ(words_in("run \"${C-}\" x${C-}"), "run||x");
  EXPECT_EQ(words_in("A=<PATH> (e.g. /x)\nrun $A"), "e.g.|/x\nrun|??") << "as templates have it";
  EXPECT_EQ(words_in("run \"$@\" $* $# ${#@}"), "run|0|0") << "the script has no arguments";
  EXPECT_EQ(words_in("set -e\nset -- a b\nrun \"$@\" x"), "set|-e\nset|--|a|b\nrun|a|b|x") << "unless it gives itself some";
  EXPECT_EQ(words_in("A=1 B=2\nunset A\nrun $B ${A:-3}\nif x; then unset B; fi; run $B"), "unset|A\nrun|2|3\nx\nunset|B ?\nrun|??");
}

TEST(ShellReader, AVariableOfABranchThatIsNotTakenIsEmpty) {
  const std::string_view script =
      "AC=none\nif [ $AC = full ]; then\n  OPTIONS='--full'\nelif [ $AC = sel ]; then\n  export OPTIONS=--sel\nfi\n";
  EXPECT_EQ(words_in(fmt::format("{}B=\"--b $OPTIONS c\"; C=(d ${{OPTIONS}}); run $OPTIONS \"${{OPTIONS[@]}}\" $B $C", script)),
            "run|--b|??|c|d");
  for (const char* const part : {"a${OPTIONS}b", "--seed $OPTIONS", "--seed=$OPTIONS", "\"$OPTIONS\"", "${OPTIONS%x}",
                                 "${#OPTIONS}", "$(( $OPTIONS + 1 ))", "\"a $OPTIONS\""})
    EXPECT_TRUE(words_in(fmt::format("{}run {}", script, part)).ends_with("??")) << part;
  EXPECT_EQ(words_in("f() { A=1; }\nrun $A; if [ -f x ]; then A=1; fi"), "run|??") << "nobody calls f";
  EXPECT_EQ(words_in("if [ a = b ]; then A=1 x; fi\nrun $A"), "run|??") << "the command's alone";
  EXPECT_EQ(words_in("A=$A/x; run $A"), "run|??") << "the user may have set it before";
  EXPECT_EQ(words_in("unset A B\nrun $A x${#A}${#B[@]}"), "unset|A|B\nrun|x00");
}

TEST(ShellReader, ArraysKeepTheirWords) {
  EXPECT_EQ(words_in("A=(--a 'b c' # d\n  --e $F \n)\nrun ${A[0]}"), "run|--a");
  EXPECT_EQ(words_in("A=(a 'b c')\nA+=(d)\nrun \"${A[@]}\" ${A[@]} \"${A[1]}\" $A"), "run|a|b c|d|a|b|c|d|b c|a");
  EXPECT_EQ(words_in("A=(a b)\nB=(\"${A[@]}\" c)\nrun \"x ${B[*]}\" end"), "run|x a b c|end");
  EXPECT_EQ(words_in("A=()\nrun \"${A[@]}\" x"), "run|x");
}

TEST(ShellReader, PartsOfValuesAreTakenAsBashTakesThem) {
  for (const auto& [expansion, value] :
       {std::pair{"${A##*/}", "c.d.json"}, {"${A#*/}", "b/c.d.json"}, {"${A%.*}", "a/b/c.d"}, {"${A%%.*}", "a/b/c"},
        {"${A%x}", "a/b/c.d.json"}, {"${A//\\//_}", "a_b_c.d.json"}, {"${A/b/X Y}", "a/X|Y/c.d.json"}, {"\"${A/\\/*}\"", "a"},
        {"${A//b}", "a//c.d.json"}, {"${A:2}", "b/c.d.json"}, {"${A:2:1}", "b"}, {"${A: -4}", "json"}, {"${A:0:-5}", "a/b/c.d"},
        {"${A^^}", "A/B/C.D.JSON"}, {"${A^}", "A/b/c.d.json"}, {"${B,,}", "tp"}, {"${#A}", "12"}, {"${#L[@]}", "3"},
        {"${L[@]:1}", "y|z"}, {"\"${L[@]:0:2}\"", "x|y"}, {"${L[@]%y}", "x|z"}, {"${@:2}", "q|r"}, {"${@:2:1}", "q"},
        {"${#@} $#", "3|3"}, {"${A%$E}", "a/b/c.d"}, {"${A%\"$E\"}", "a/b/c.d"}, {"${L[1]/y/w}", "w"}, {"${N%x}n", "n"},
        {"${A/$E/x}", "a/b/c.dx"}, {"${A%\"*\"}", "a/b/c.d.json"}, {"${A[[]}", "??"}, {"${@:0}", "??|p|q|r"}, {"${A:B}", "??"},
        {"${A~~}", "??"}, {"${Z#x}", "??"}, {"${S//\\*/x}", "axb?c"}, {"${S%\\?*}", "a*b"}, {"\"${S%\"$P\"}\"", "a*b?c"},
        {"${S/$P/x}", "x"}, {"${S/\"$P\"/x}", "axb?c"}, {"${A/%.json/.txt}", "a/b/c.d.txt"}, {"${A/#a/x}", "x/b/c.d.json"},
        {"${A/#b/x}", "a/b/c.d.json"}, {"${A//#a/x}", "a/b/c.d.json"}, {"${L[@]/#/-}", "-x|-y|-z"},
        {"\"${A/'b/c'/\\n}\"", "a/n.d.json"}, {"${N/*/x}", "x"}, {"${A/b/&}", "??"}, {"${L[@]:0:-1}", "??"}, {"${@:1:-1}", "??"},
        {"${U:0:1}", "??"}, {"${#U}", "??"}, {"${U%/*}", "\u00e9"}, {"${#Z}", "??"}, {"${#N} ${#N[@]}", "0|1"},
        {"${0%.sh}", "run"}, {"${X[1]}", "??"}, {"${A/b/~}", "??"}, {"${A:0:-20}", "??"}})
    EXPECT_EQ(words_in(fmt::format("set -- p q r\nA=a/b/c.d.json B=TP E=.json N= S='a*b?c' P='*' U=\u00e9/b\n"
                                   "L=(x y z) X=($(x))\nrun {}", expansion)),
              fmt::format("set|--|p|q|r\nrun|{}", value))
        << expansion;
}

TEST(ShellReader, ATextInAngleBracketsStandsForAValue) {
  EXPECT_EQ(words_in("run --a=<port> x --b <your path> c <in >out d <<< <x>\nE=<dir>/f\nrun $E"), "run|??|x|--b|??|c|d\nrun|??");
  EXPECT_EQ(words_in("run <in.txt>log a<b>c <d>_<e>"), "run|??|??");
}

TEST(ShellReader, IntegersAreComputed) {
  EXPECT_EQ(words_in("N=4\nrun $((N*8)) $(($N * 3 - 7 % 4 + 2 * $N / 3)) $((-1))x"), "run|32|11|-1x");
  EXPECT_EQ(words_in("N=4\nrun $(( (N + 1) * 2 - (3 - -N) )) $((2*(3*(N)))) $(expr \\( $N + 1 \\) \\* 2)"), "run|3|24|10");
  EXPECT_EQ(words_in("N=4\nrun $(( ($N > 1) ? 1 : 0 )) $((N == 4 ? N != 4 ? 2 : N*5 : 3)) $((N<=3)) $((N>=4)) $((N<5))"),
            "run|1|20|0|1|1");
  EXPECT_EQ(words_in("run $((2 == 1 < 2)) $((1 < 2 == 1)) $((3 > 2 > 1)) $((1 != 2 == 1))"), "run|0|1|0|1");
  EXPECT_EQ(words_in("N=4\nif ((N > 3)); then a; else b; fi\nif (( N - 4 )); then a; else c; fi\nif ((X)); then d; fi"),
            "a\nc\nd ?");
  for (const char* not_integers : {"1 / 0", "9223372036854775807 + 1", "1.5", "010", "N ? 1 2", "1 +", "2 ** 3", "2 (3)",
                                   "1 < 2 < x"})
    EXPECT_EQ(words_in(std::string("run $((") + not_integers + "))"), "run|??") << not_integers;
}

TEST(ShellReader, ExprComputesIntegers) {
  EXPECT_EQ(words_in("N=4\nrun $(expr 16 / $N) \"$(expr $N \\* 2 - 1)\" $(expr 1 : 2) $(expression 1)"), "run|4|7|??|??");
  EXPECT_EQ(words_in("N=4\nif [ $N -gt 3 ] && [[ 2 -le $N ]]; then run; fi; if [ $N -lt x ]; then run2; fi"), "run\nrun2 ?");
}

TEST(ShellReader, AWordKnowsWhereItWasWritten) {
  const std::vector<ShellCommand> commands = read_shell("LR=1e-4\nARGS=(\n  --lr $LR\n)\nrun \\\n  \"${ARGS[@]}\" x", "run.sh");
  ASSERT_EQ(commands.size(), 1);
  std::string places;
  for (const ShellWord& word : commands[0].words) places += fmt::format("{}:{} {}\n", word.line, word.column, word.text);
  EXPECT_EQ(places, "5:1 run\n3:3 --lr\n1:4 1e-4\n6:16 x\n");
}

TEST(ShellReader, WhatWouldBeExecutedHasNoValue) {
  const auto reason = [](std::string_view script) {
    return read_shell(script, "run.sh").back().words.at(1).unknown;
  };
  EXPECT_EQ(reason("A=$(nproc --all)\nrun --n=$A"),
            "\"$(nproc --all)\" in line 1 would have to be executed; write its value in its place");
  EXPECT_EQ(reason("run `date`"), "\"`date`\" in line 1 would have to be executed; write its value in its place");
  EXPECT_EQ(reason("\nrun $DATA/x"), "\"$DATA\" is set nowhere before line 2; write DATA=... above it");
  EXPECT_EQ(reason("A=b; run ${A@Q}"), "\"${A@Q}\" in line 1 would have to be executed; write its value in its place");
  EXPECT_EQ(reason("run ${A%.x}"), "\"$A\" is set nowhere before line 1; write A=... above it");
  EXPECT_EQ(reason("\nrun --a=<your path>"), "\"<your path>\" in line 2 stands for a value of yours; write it in its place");
  EXPECT_EQ(reason("run $1/x"), "\"$1\" is an argument of the script (set -- ARGUMENTS above its first command gives it)");
  EXPECT_EQ(reason("run \"$HOME\""), "\"$HOME\" is known where the script runs");
  EXPECT_EQ(reason("for A in $(ls); do B=$A; done\nrun $B"),
            "it depends on the loop in line 1, which import does not follow");
  EXPECT_EQ(reason("if [ -f x ]; then\nB=1\nfi\nrun $B"),
            "it depends on the condition in line 1, which import does not follow");
  EXPECT_EQ(reason("if [ $1 = a ]; then\nB=1\nfi\nC=$1\ncase $C in a) B=2;; esac\nrun $B"),
            "it depends on the case in line 5: \"$1\" is an argument of the script (set -- ARGUMENTS above its first command "
            "gives it)");
  EXPECT_EQ(reason("N=$(expr 3 + 4 | cat)\nrun $N"),
            "\"$(expr 3 + 4 | cat)\" in line 1 would have to be executed; write its value in its place");
  EXPECT_EQ(words_in("A=$(x 'a)' \"$(y ')')\" \\) )\nB=1\nrun $B"), "run|1");
  EXPECT_EQ(words_in("A=$(cat <<E >x\nit's ) $B\nE\n)\nB=\"$(cat <<-'E F' | x # it's )\n\t(\"\n\tE F\n)\"\n"
                     "C=$((1 << 2))\nD=$(cat << E | x <<< 'y'\n(\nE\n)\nrun $A ${B-1}"), "run|??|??");
  EXPECT_EQ(words_in("B=1\nA=$(cat <<E\nit's ) $B\nE\n)\nC=\"$( cat<<-'E F' # it's )\n\t--b $B\n\n\tE F\n)\"\nrun $A $C"),
            "run|it's|)|1|--b|$B") << "a here document that cat prints";
}

TEST(ShellReader, PathsOfTheScriptAndOfItsFolderAreKnown) {
  const auto words = [](std::string_view script) {
    std::string all;
    const std::vector<ShellCommand> commands = read_shell(script, "a/b/run.sh");
    for (const ShellWord& word : commands.back().words) all += (all.empty() ? "" : "|") + word.text;
    return all;
  };
  EXPECT_EQ(words("run $0 ${BASH_SOURCE} \"${BASH_SOURCE[0]}\""), "run|a/b/run.sh|a/b/run.sh|a/b/run.sh");
  EXPECT_EQ(words("D=$(dirname \"$0\")\nrun $D/z.yaml `dirname $0`/y $(dirname -- \"${BASH_SOURCE[0]}\")"),
            "run|a/b/z.yaml|a/b/y|a/b");
  EXPECT_EQ(words("run $(dirname x) $(dirname /x/)"), "run|.|/");
  EXPECT_EQ(words("run $(basename $0 .sh) $(basename /c/d/) $(basename $(dirname $0))"), "run|run|d|b");
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(words("D=\"$( cd -- \"$(dirname \"${BASH_SOURCE[0]}\")/..\" &> /dev/null && pwd )\"\nrun $D"), "run|" + here + "/a");
  EXPECT_EQ(words("cd \"$(dirname $0)\" || exit\nrun $PWD $(pwd)/c $(realpath ../d)"),
            "run|" + here + "/a/b|" + here + "/a/b/c|" + here + "/a/d");
  EXPECT_EQ(words("(cd a)\nbash -c 'cd /c'\ncd /b/c; cd ..; run $PWD `pwd -P`"), "run|/b|/b");
  for (const char* const open : {"$(dirname $X)", "$(basename $(x))", "$(pwd | x)", "$(cd x && ls)", "$(realpath --x=a b)",
                                "$(realpath ~/c)", "$(realpath a*)"})
    EXPECT_EQ(words_in(fmt::format("run {}", open)), "run|??") << open;
  EXPECT_EQ(words_in("cd $X\nrun $PWD $(pwd) $(realpath x) $(dirname x/y)"), "cd|??\nrun|??|??|??|x");
  EXPECT_EQ(words_in("if [ -d x ]; then cd x; fi\nrun $PWD"), "cd|x ?\nrun|??");
  EXPECT_TRUE(read_shell("run $0", "-")[0].words[1].unknown.ends_with("\"$0\" is known where the script runs"));
  EXPECT_EQ(read_shell("\nrun $0", "run.sh")[0].words[1].line, 2);
}

TEST(ShellReader, LoopsAreFollowedWhileTheirPassesAreKnown) {
  EXPECT_EQ(words_in("A=(c d)\nfor X in a 'b c' \"${A[@]}\"; do\n  run \"$X\"\ndone\nend $X"),
            "run|a\nrun|b c\nrun|c\nrun|d\nend|d");
  EXPECT_EQ(words_in("N=0\nwhile [ $N -lt 3 ]; do N=$((N + 1)); run $N; done; until [ $N = 3 ]; do x; done; end $N"),
            "run|1\nrun|2\nrun|3\nend|3");
  EXPECT_EQ(words_in("set -- --lr 1e-4 --mbs 4 -x\nwhile [[ $# -gt 0 ]]; do\n  case \"$1\" in\n    --lr) LR=\"$2\"; shift 2;;\n"
                     "    --mbs)\n    M=$2\n    shift\n    shift\n    ;;\n    *) O=$1; shift;;\n  esac\ndone\nrun $LR $M $O $#"),
            "set|--|--lr|1e-4|--mbs|4|-x\nshift|2\nshift\nshift\nshift\nrun|1e-4|4|-x|0");
  EXPECT_EQ(words_in("for X in 1 2 3 4; do if [ $X = 2 ]; then continue; fi; [ $X != 4 ] || break\n"
                     "for Y in a; do run $X $Y; done; done"),
            "run|1|a\ncontinue\nrun|3|a\nbreak");
  EXPECT_EQ(words_in("for X in 1 2; do N=$X; if [ -f x ]; then break; fi; M=$X; done\nrun $N $M $X"),
            "break ?\nbreak ?\nrun|??|??|??");
  EXPECT_EQ(words_in("for X; do run; done; for X in \"$@\"; do run; done; for X in; do run; done\nend"), "end") << "no arguments";
  EXPECT_EQ(words_in("set -- a b\nfor X; do run $X; done"), "set|--|a|b\nrun|a\nrun|b");
  for (const char* const open : {"for X in $(ls)", "for X in *.sh", "for X in {1..3}", "for X in a $Y"})
    EXPECT_TRUE(words_in(fmt::format("{}; do run $X; N=1; done\nend $N", open)).ends_with("?\nend|??")) << open;
  EXPECT_EQ(words_in("while read X; do run; done < x\nfor X in a; do run; done > log"), "read|X\nrun ?\nrun");
  EXPECT_EQ(refused_shell("for X in a; do x"), "run.sh:1:1: nothing closes this \"loop\"");
}

TEST(ShellReader, TheFirstPassOfARestartLoopCounts) {
  for (const char* const endless : {"while true", "while :", "while [ 1 ]", "until false", "while ((1))", "while ! false"})
    EXPECT_NE(words_in(fmt::format("N=1\n{}; do\n  run $N\n  N=2\ndone", endless)).find("run|1\n"), std::string::npos) << endless;
  EXPECT_EQ(words_in("N=1\nwhile [ 1 ]; do run $N; N=2; if [ $? = 0 ]; then break; fi; done\nend $N"),
            "run|1\nbreak ?\nrun|2 ?\nbreak ?\nend|??");
  EXPECT_EQ(words_in("N=1\nuntil run $N; do N=2; done\nend $N"), "run|1\nend|??");
  EXPECT_EQ(words_in("N=1\nuntil [ -f x ]; do run $N; N=2; done\nend $N"), "run|1 ?\nend|??");
  EXPECT_EQ(words_in("until [ -f x ]; do if [ -f y ]; then run; fi; done"), "run ?") << "whether it runs at all is another doubt";
  EXPECT_EQ(words_in("while [ 1 ]; do run && break; sleep 1; done\nend"), "run\nbreak\nend") << "commands are taken to succeed";
}

TEST(ShellReader, FunctionsAreFollowedWhereTheyAreCalled) {
  EXPECT_EQ(words_in("set -- z\nf() {\n  local A=$1\n  shift; B=$A\n  run $A $# \"$@\"\n}\nA=1\nf x 'y z'\nend $A $B $1"),
            "set|--|z\nlocal\nshift\nrun|x|1|y z\nend|1|x|z");
  EXPECT_EQ(words_in("function f { run ${1:-d}; }\nf; f 2"), "run|d\nrun|2");
  EXPECT_EQ(words_in("f() { [ $1 = a ] && return; run; }\nf a; f b"), "return\nrun");
  EXPECT_EQ(words_in("f() { N=1; [ -f x ] && return; N=2; }\nf; run $N"), "return ?\nrun|??");
  EXPECT_EQ(words_in("f() { N=$M; }\nN=1; M=2 f; run $N ${M-0}; f() (N=3); f; run $N; f | x; run $N"), "run|2|0\nrun|2\nx\nrun|2");
  EXPECT_EQ(words_in("f() { N=2; exit 0; }\nN=1; (f); run $N; f; run2"), "exit|0\nrun|1\nexit|0\nrun2");
  EXPECT_EQ(words_in("run() { command run \"$@\"; }; run a"), "run|a");
  EXPECT_EQ(refused_shell("f() { f; }\nf"), "run.sh:1:7: more than 64 levels; give import the command alone");
}

// N is 1 before each of these scripts. Afterwards it is 1, 2 as bash 5.2 has it, or unknown without executing.
TEST(ShellReader, AVariableHasTheValueThatBashGivesItOrNone) {
  constexpr std::string_view kStays[] = {
      // a shell of its own sets it
      "(N=2)", "N=2 | x", "{ N=2; x; } | y", "x | { N=2; }", "x | while true; do N=2; break; done", "if [ a ]; then N=2; fi | x",
      "N=2 &", "{ N=2; } &", "bash -c 'N=2'", "f() { N=2; }; f | x", "[ a ] && N=2 | x", "(N=2) || N=3", "x | (N=2)",
      "f() { N=2; exit 0; }; (f)",
      // they set other variables, or none
      "printf '%s' N", "read M", "mapfile -t M < <(x)", "source ~/.bashrc", ". v/bin/activate", "eval \"$(conda shell.bash hook)\"",
      "trap 'N=2' EXIT", "echo $((N + 1))", "M=2 x", "local N=1", "unset -f N", "if (( N > 2 && N == 4 || N <= 3 )); then A=1; fi",
      // nothing runs that sets it
      "test a = b && N=2", "[ a = b ] && N=2",
      "if [ $N -gt 10 ] 2>/dev/null; then N=2; fi", "[[ $N == 4 ]] >/dev/null && N=2", "[ $N = 1 ] 2>/dev/null || N=2",
      "{ [ -n \"$A\" ] || [ -n \"$B\" ]; } && N=2", "( [ a = b ] ) && N=2", "{ true; } || N=2", "[ a = a ] || { N=2; }",
      "[ 10 -lt 9 ] && N=2", "(( N == 9 )) 2>/dev/null && N=2",
      "[ $X -ge 8 ] && N=2", "[ \"$X\" -eq 1 ] && N=2", "[[ 4 -eq 5 ]] && N=2"};
  constexpr std::string_view kChanges[] = {
      "x | y\nN=2", "N=2 2>/dev/null", "> /dev/null N=2", "N=2>/dev/null", "[ $N = 1 ] 2>/dev/null && N=2",
      "export A=1 && N=2", "[ a = b ] && { x; } || N=2", "set x; set -x -- 2; N=$1",
      "set x; set -eu -- 2; N=$1", "readonly N=2", "set x; set +x 2; N=$1", "set x; set -euo pipefail 2; N=$1",
      "[ 10 -gt 9 ] && N=2", "[ 4 -ne -1 ] && N=2", "B='1 '; N=$((B * 2))", "[[ 0 -eq 0 && 3 -le 3 ]] && N=2",
      "[ -1 -lt 0 ] && N=2", "A=3; N=$(($A - 1))", "f() { N=$M; }; M=2 f", "f() (N=3); f; N=2"};
  constexpr std::string_view kOpen[] = {
      // a builtin sets it, or may
      "let N=N+1", "let 'N = 2'", "read N", "IFS=, read -r M N", "read -p N", "x | read N; read N", "mapfile -t N < x",
      "readarray N", "printf -v N %s 2", "read N[0]", "N[0]=2", "N=([0]=2)", "declare -A N=([a]=2)", "M=N; declare \"$M=2\"",
      "export $(cat x)", "read $X", "eval $(x)", "eval \"$X=2\"", "eval N$X=2", "source x", ". ./x.sh", "unset 'N[0]'",
      "getopts a: N", "command read N", "! read N", "readonly N; N=2", "mkdir a && cd a && N=2", "mkdir a && false && N=2",
      // a sum sets it
      "((N = 8))", "((N+=1))", "(( N++ ))", "for ((N=0; N<2; N++)); do x; done", "((M = 1, N = 2))", "x $((N++))", "N=$((1 0))",
      "N=$(expr 16/4)", "A=1+2; N=$((A * 2))",
      // what sets it may run
      "x && N=2", "x || N=2", "if x && [ a = a ]; then N=2; fi", "x && export N=2", "cd x && y && N=2", "test -f x && N=2",
      "! x && N=2", "wait || { N=2; }", "cd a || N=2", "{ echo; } && N=2", "(( X == 9 )) 2>/dev/null && N=2",
      "if X=$(x -L 2>/dev/null); then N=2; fi", "X=$(false) || N=2", "X=`x` && N=2", "N=$(nproc) 2>/dev/null",
      "( [ -f x ] ) && N=2", "(exit 3) || N=6", "if [ a = a ]; then [ a = b ]; fi && N=2", "{ x && echo; } && N=2",
      "[ 08 -eq 8 ] && N=2", "[ \"$X\" -eq 0 ] && N=2", "[ a -eq a ] && N=2", "[ ! \"$X\" -eq 1 ] && N=2"};
  const auto last = [](std::string_view script) {
    const std::string all = words_in(fmt::format("set -- a\nN=1\n{}\nrun \"$N\"", script));
    return all.substr(all.rfind("run|") + 4, 2);
  };
  for (const std::string_view script : kStays) EXPECT_EQ(last(script), "1") << script;
  for (const std::string_view script : kChanges) EXPECT_EQ(last(script), "2") << script;
  for (const std::string_view script : kOpen) EXPECT_EQ(last(script), "??") << script;
}

TEST(ShellReader, WhatFewScriptsHaveIsRefusedWhereItStands) {
  for (const char* const script :
       {"declare -n M=N", "declare -i N", "typeset -l N=A", "select N in a; do x; done", "echo $[ 2 + 2 ]", "shopt -s lastpipe",
        "for X in 1; do break 2; done", "f() { x; }; [ -f x ] && f() { y; }"}) {
    const std::string refusal = refused_shell(script);
    EXPECT_TRUE(refusal.starts_with("run.sh:1:")) << refusal;
    EXPECT_TRUE(refusal.ends_with(" is not followed; give import the command alone")) << refusal;
  }
  EXPECT_EQ(refused_shell("case a in a) run1;& b) run2;; esac"), "run.sh:1:22: \")\" stands here alone; correct the script");
}

TEST(ShellReader, VariablesThatOthersMayHaveSetAreUnknown) {
  EXPECT_EQ(words_in("N=1; export M=2\nbash -c 'run $N $M $1 $#' a b c"), "export\nrun|??|2|b|2") << "N is not exported";
  EXPECT_EQ(words_in("cd a | x\nrun $PWD\n"), words_in("cd a | x\nrun $(pwd)\n"));
  EXPECT_EQ(words_in("source x\nif [ -z $N ]; then M=1; fi\nrun ${N:-2} $M; N=3; run $N"), "source|x\nrun|??|??\nrun|3");
  EXPECT_EQ(words_in("export A=1\nexport A=2 B=$A\nrun $A $B"), "export\nexport\nrun|2|1") << "words are replaced first";
  EXPECT_EQ(words_in("A='1,2 3'\nrun $A\nIFS=,\nrun $A \"$A\""), "run|1,2|3\nrun|??|1,2 3");
  EXPECT_EQ(words_in("A=(\"\" b)\nrun ${A:-1} ${A[3]:-2} ${A[@]:+3}"), "run|1|??|3");
  EXPECT_EQ(words_in("run ~/a a~ '~' {a,b} x{1..3} {} '{a,b}'; A=~/b; run $A {a}"), "run|??|a~|~|??|??|{}|{a,b}\nrun|??|{a}");
  EXPECT_EQ(words_in("if [ $SLURM_NODEID = 0 ]; then A=1; fi; run ${A-0}"), "run|??");
  EXPECT_EQ(words_in("((run) ; run2)"), "run\nrun2");
}

// A script has no arguments, unless the caller asks what it does with some.
TEST(ShellReader, ArgumentsThatNobodyKnowsLeaveDoubt) {
  constexpr std::string_view kScript =
      "if [ \"$1\" = a ]; then run; fi\nwhile [[ $# -gt 0 ]]; do shift; run2; done\nfor X; do run3; done";
  EXPECT_EQ(words_in(kScript), "");
  std::string all;
  for (const ShellCommand& command : read_shell(kScript, "run.sh", {}, {}, nullptr, {}, true))
    all += command.words[0].text + ": " + command.doubt + '\n';
  EXPECT_NE(all.find("run: it depends on the condition in line 1: \"$1\" is an argument of the script (set -- ARGUMENTS"), all.npos)
      << all;
  EXPECT_NE(all.find("\nrun3: it depends on the loop in line 3"), all.npos) << all;
}

TEST(ShellReader, FilesThatSourceNamesAreRead) {
  const ShellSources sources = [](const std::string& path) {
    return path == "d/env.sh" ? std::optional<std::string>("# of all\nN=$1\nrun ${BASH_SOURCE[0]}\nreturn\nN=9\n") : std::nullopt;
  };
  EXPECT_EQ(words_in("set -- z\nsource d/env.sh 2; end $N $1", sources),
            "set|--|z\nrun|d/env.sh\nreturn\nsource|d/env.sh|2\nend|2|z");
  EXPECT_EQ(words_in("cd d; . ./env.sh 3; end $N ${M:-4}", sources), "cd|d\nrun|d/env.sh\nreturn\n.|./env.sh|3\nend|3|4");
  EXPECT_EQ(words_in("N=1; cd $X; . ./env.sh 3; end $N ${M:-4}", sources), "cd|??\n.|./env.sh|3\nend|??|??");
  EXPECT_EQ(words_in("cat > e <<E\nN=4\nE\nsource e; run $N; echo N=5 >> e; . e; run $N"),
            "cat\nsource|e\nrun|4\necho|N=5\n.|e\nrun|??");
}

TEST(ShellReader, SetGivesTheScriptItsArguments) {
  EXPECT_EQ(words_in("set -- dsw 7B 'a b'\nrun $1 \"$3\" $# \"$@\" $4 x"), "set|--|dsw|7B|a b\nrun|dsw|a b|3|dsw|7B|a b|x");
  EXPECT_EQ(words_in("set -- a b c\nshift\nN=$1; shift; run $N $1 ${2:-d} $#"), "set|--|a|b|c\nshift\nshift\nrun|b|c|d|1");
  EXPECT_EQ(words_in("set -- a b\nshift $((OPTIND - 1))\nrun $1 $#"), "set|--|a|b\nshift|??\nrun|??|??");
  EXPECT_EQ(words_in("set -- 7B\nS=$1\nif [ $S = 7B ]; then L=32; elif [ $S = 13B ]; then L=40; fi\nrun $L"), "set|--|7B\nrun|32");
  EXPECT_EQ(words_in("set -- a\nif [ -f x ]; then set -- b; fi\nrun $1 $# \"$@\""), "set|--|a\nset|--|b ?\nrun|??|??|??");
}

TEST(ShellReader, TextsThatCatWritesIntoFilesAreKept) {
  const auto written = [](std::string_view script) {
    ShellFiles files;
    read_shell(script, "run.sh", {}, {}, &files);
    std::map<std::string, ShellFile> last;
    for (const ShellFile& file : files) last[file.name] = file;
    std::string all;
    for (const auto& [name, file] : last) all += file.unknown.empty() ? fmt::format("{}: {}", name, file.text) : "";
    return all;
  };
  EXPECT_EQ(written("N=2\ncat <<EOT > d/ds.$N.json\n{\"stage\": $N, \"a\": \"\\$N\"}\nEOT\nrun"),
            "d/ds.2.json: {\"stage\": 2, \"a\": \"$N\"}\n");
  EXPECT_EQ(written("N=2\ncat > ds.json <<'E'\n$N\nE\ncat > b <<-E\n\t\tx\ty\n\tE\n"), "b: x\ty\nds.json: $N\n");
  EXPECT_EQ(written("cat <<E > x\n\tE\n\\\"a\\}b\\\\c\\$d\\`e\\\nf\nE\n"), "x: \tE\n\\\"a\\}b\\c$d`ef\n");
  EXPECT_EQ(written("if [ a = b ]; then\ncat <<E > x\n1\nE\nelse\ncat <<E > x\n2\nE\nfi"), "x: 2\n");
  EXPECT_EQ(written("cat <<E > x\n1\nE\nif [ -f y ]; then\ncat <<E > x\n2\nE\nfi"), "") << "nobody knows which";
  EXPECT_EQ(written("cat a <<E > x\n1\nE\ncat <<E >> y\n1\nE\ncat <<E\n1\nE\n"), "");
  for (const std::string condition : {"[ -f x ] || ", "[ -f x ] && ", "false && ", "true || ", "[ a = b ] && "})
    EXPECT_EQ(written(condition + "cat <<E > x\n1\nE\n"), "") << condition;
  EXPECT_EQ(written("[ -d y ] || mkdir y\ncat <<E > x && echo done\n1\nE\n"), "x: 1\n");
}

TEST(ShellReader, DocumentsAreScriptsOfShellsAndValuesOfRead) {
  EXPECT_EQ(words_in("N=2; export M=3\nsbatch -p x <<E\n#SBATCH -N 1\nN=$N; run \\$N $M \\${M}\nE\nend $N"),
            "export\nsbatch|-p|x\nrun|2|3|3\nend|2");
  EXPECT_EQ(words_in("N=2\nbash -s <<-'E' | tee x\n\tM=1; run $M ${N-0}\n\tE\nend ${M-0}"), "bash|-s\ntee|x\nrun|1|0\nend|0");
  EXPECT_EQ(words_in("[ -f x ] && sbatch <<E\nrun\nE\nif [ a = b ]; then sbatch <<E\nrun2\nE\nfi\nend"), "sbatch ?\nrun ?\nend");
  EXPECT_EQ(words_in("N=2\nread -r -d '' A <<E || true\n  --a $N\n  --b\nE\nrun $A \"$A\""),
            "read|-r|-d||A\nrun|--a|2|--b|--a 2\n  --b");
  EXPECT_EQ(words_in("read A <<E\n 1 2\n3\nE\nrun $A"), "read|A\nrun|1|2") << "one line of it";
  for (const char* const open : {"read A B", "read -a A", "read -n 1 A", "[ -f x ] && read A"})
    EXPECT_TRUE(words_in(fmt::format("{} <<E\n1\nE\nrun $A", open)).ends_with("\nrun|??")) << open;
  EXPECT_EQ(words_in("bash x.sh <<E\nrun\nE\nsbatch x.sh <<E\nrun\nE\n"), "bash|x.sh\nsbatch|x.sh") << "what a script reads";
  EXPECT_EQ(refused_shell("sbatch <<E\nif x\nE\n"), "run.sh:2:1: nothing closes this \"if\"");
}

TEST(ShellReader, FilesThatOtherCommandsChangeAreNotKept) {
  const auto written = [](std::string_view then) {
    ShellFiles files;
    read_shell(fmt::format("cat <<E > ./x\n1\nE\n{}", then), "run.sh", {}, {}, &files);
    const auto last = std::find_if(files.rbegin(), files.rend(), [](const ShellFile& file) { return file.name == "x"; });
    return last->unknown.empty() ? last->text : "lost";
  };
  EXPECT_EQ(written("cat <<E >> d/../x\n2\nE\n"), "1\n2\n");
  EXPECT_EQ(written("sed -i s/1/2/ $PWD/x"), "lost") << "by another name";
  EXPECT_EQ(written("cd d; rm x"), "1\n") << "d/x is another file";
  EXPECT_EQ(written("cat <<E > x 2>/dev/null\n2\nE\n"), "2\n") << "errors go elsewhere";
  EXPECT_EQ(written("cat <<E 2> x 1> y\n2\nE\n"), "lost");
  for (const char* const change : {"echo 2 > x", "echo 2 >> ./x", "run &> x", "run 2>> x", "{ echo 2; } >> x", "[ -f y ] > x",
                                   "[ -f y ] && echo 2 > x", "[ -f y ] && cat <<E >> x\n2\nE\n", "cat a <<E >> x\n2\nE\n",
                                   "cat <<E >> x; echo 3 > x\n2\nE\n", "> x", "sed -i s/1/2/ x",
                                   "sed -e s/1/2/ --in-place=.bak ./x", "perl -pi -e s/1/2/ x", "cp y x", "mv y d/../x", "rm x",
                                   "cp d/x .", "echo 2 | tee x", "tee -a x < y", "[ -f y ] && sed -i s/1/2/ x"})
    EXPECT_EQ(written(change), "lost") << change;
  for (const char* const same : {"run < x > y", "sed s/1/2/ x", "cp x y", "cat x | tee y", "run 2>&1",
                                 "[ a = b ] && echo 2 > x", "if [ a = b ]; then { run; } > x; fi"})
    EXPECT_EQ(written(same), "1\n") << same;
}

TEST(ShellReader, TestsOfTextsDecideAndOthersLeaveDoubt) {
  EXPECT_EQ(words_in("T=fp8\nif [[ \"$T\" == \"fp8\" ]]; then A=1; elif x; then A=2; else A=3; fi\nrun $A"), "run|1");
  EXPECT_EQ(words_in("T=bf16\nif [ $T = fp8 ]; then A=1; elif [ -z \"$U\" ]; then A=2; else A=3; fi\nrun $A"), "run|2");
  EXPECT_EQ(words_in("if [[ -n $K ]] || [[ \"a\" != \"a\" ]]; then A=1\nelse\n  A=2\nfi; run $A"), "run|2");
  EXPECT_EQ(words_in("[ ! -z \"$X\" ] && A=1 || A=2\nrun $A"), "run|2");
  EXPECT_EQ(words_in("A=1\nif [[ -f x ]]; then A=2; fi\nrun $A"), "run|??");
  EXPECT_EQ(words_in("if [[ a == b ]]; then : ${A:=2}; fi\nrun ${A:-1}"), "run|1");
  EXPECT_EQ(words_in("if [[ -f x ]]; then : ${A:=2}; fi\nrun ${A:-1}"), ":|2 ?\nrun|??");
  EXPECT_EQ(words_in("if [ -d a ]; then run; exit 1; fi\nrun2"), "run ?\nexit|1 ?\nrun2");
  EXPECT_EQ(words_in("mkdir a || exit 1\ncd a && run"), "mkdir|a\ncd|a\nrun") << "commands are taken to succeed";
  EXPECT_EQ(words_in("[ -n \"$A\" ] || exit\nrun\nexit 0\nrun old\nN=2 run older"), "exit\nrun\nexit|0") << "nothing runs then";
  EXPECT_EQ(words_in("exec > log\nexec run 4\nrun old"), "exec\nexec|run|4");
  for (const char* const script : {"exec > >(tee -a log) 2>&1\nrun", "exec &> >(tee -a x)\nrun", "exec {lock}>run.lock\nrun",
                                   "echo hi | exit 1\nrun", "exit 1 &\nrun", "exit 1 | x\nrun", "exec x & wait\nrun",
                                   "echo lastpipe\nexport -n A\nrun",
                                   "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done\nrun"})
    EXPECT_TRUE(("\n" + words_in(script)).ends_with("\nrun")) << words_in(script);
  EXPECT_EQ(words_in("f() {\n  run\n}\nwhile x; do run2; done\ncase $A in\n  a|b) run3;;\n  *) run4\nesac\nend"),
            "x\nrun2 ?\nrun4\nend") << "nobody calls f, and A is nowhere set";
  EXPECT_EQ(words_in("(cd a; run)\n{ run2; } > log\nif [ a ]; then (run3); fi | tee x"), "cd|a\nrun\nrun2\nrun3\ntee|x");
  EXPECT_EQ(words_in("! [ a ] && A=1\nrun $A\nif ! x; then run2; fi"), "run\nx\nrun2 ?");
  EXPECT_EQ(words_in("A=1\n(A=2; run $A)\nrun $A"), "run|2\nrun|1") << "a shell of its own";
  EXPECT_EQ(words_in("if [[ a == b && c == c || d == d ]]; then run; fi"), "run");
  EXPECT_EQ(words_in("if [[ a == a && ( b == b ) ]]; then run; fi"), "run ?");
}

TEST(ShellReader, SignsInQuotesAndTextsWithoutEndLeaveCasesInDoubt) {
  const auto body = [](const std::string& pattern) { return words_in("S=ab\ncase $S in " + pattern + ") run ;; esac"); };
  EXPECT_EQ(body("a*"), "run");
  for (const char* const quoted : {"\"a*\"", "'a*'", "a\\*", "\"a\"'?'", "\"a\"*"}) EXPECT_EQ(body(quoted), "run ?") << quoted;
  const auto many = [](std::size_t letters) {
    return words_in("S=" + std::string(letters, 'a') + "\ncase $S in " + std::string(1000, '*') + ") run ;; esac");
  };
  EXPECT_EQ(many(1000), "run");
  EXPECT_EQ(many(1001), "run ?") << "more than a million comparisons";
}

TEST(ShellReader, CasesOfTextsDecideAndOthersLeaveDoubt) {
  const std::string sizes = "case \"$S\" in\n 7B|8[bB]) run1 ;;\n (13?*) run2;;\n \"70B\") run3\n ;;\n *) run4;;\nesac\nend";
  EXPECT_EQ(words_in("S=7B\n" + sizes), "run1\nend");
  EXPECT_EQ(words_in("S=13B\n" + sizes), "run1 ?\nrun2 ?\nend") << "sets of letters are not followed";
  EXPECT_EQ(words_in("S=a.b\ncase $S in *.) x;; a*c|a*b) A=1;; *) A=2;; esac; run $A"), "run|1");
  EXPECT_EQ(words_in("case x in y) run1;; esac\nend"), "end");
  EXPECT_EQ(words_in("case $(x) in y) A=1;; *) A=2;; esac\nrun $A"), "run|??");
  EXPECT_EQ(words_in("case a in a) case b in c) run1;; b) run2;; esac;; *) run3;; esac"), "run2");
  EXPECT_EQ(words_in("case a in \"*\"|\\?) A=1;; *) A=2;; esac; run $A"), "run|??") << "letters, not signs";
  const std::string letters(400'000, 'a');
  EXPECT_EQ(words_in("A=" + letters + "\ncase $A in *" + letters + "b) A=1;; *) A=2;; esac; run $A"), "run|??");
}

TEST(ShellReader, AnEmptyVariableWithoutQuotesIsNoWordOfATest) {
  EXPECT_EQ(words_in("if [ -n $X ]; then run1; else run2; fi"), "run1");
  EXPECT_EQ(words_in("if [ -n \"$X\" ]; then run1; else run2; fi"), "run2");
  EXPECT_EQ(words_in("if [[ -n $X ]]; then run1; else run2; fi"), "run2");
  EXPECT_EQ(words_in("if [ $X = a ]; then run1; else run2; fi"), "run2") << "an error, which is no success";
  EXPECT_EQ(words_in("X='a = a'\nif [ $X ]; then run1; else run2; fi"), "run1");
}

TEST(ShellReader, ShellsInWordsAreRead) {
  EXPECT_EQ(words_in("CMD='run --a \"b c\"'\nsrun -N 2 bash -c \"cd x; $CMD $1 $X\""),
            "srun|-N|2|cd|x\nsrun|-N|2|run|--a|b c|??|??");
  EXPECT_EQ(words_in("CMD=\"run --a 'b c'\"; eval $CMD d; A=1; eval \"B=$A\"; run $B"), "run|--a|b c|d\nrun|1");
}

TEST(ShellReader, WhatDoesNotCloseIsRefusedByItsPlace) {
  EXPECT_EQ(refused_shell("a\n b 'c"), "run.sh:2:4: nothing closes this quote");
  EXPECT_EQ(refused_shell("a \"b"), "run.sh:1:4: nothing closes this quote");
  EXPECT_EQ(refused_shell("a $(b"), "run.sh:1:3: nothing closes this parenthesis");
  EXPECT_EQ(refused_shell("a ${b"), "run.sh:1:5: nothing closes this brace");
  EXPECT_EQ(refused_shell("A=(b\nc"), "run.sh:1:1: nothing closes this parenthesis");
  EXPECT_EQ(refused_shell("if a; then b"), "run.sh:1:1: nothing closes this \"if\"");
  EXPECT_EQ(refused_shell("a\nfi"), "run.sh:2:1: \"fi\" stands here alone; correct the script");
  EXPECT_EQ(refused_shell("((1)"), "run.sh:1:1: nothing closes this \"(\"");
  EXPECT_EQ(refused_shell("f ("), "run.sh:1:3: \"(\" stands here alone; correct the script");
  EXPECT_EQ(refused_shell("[[ a"), "run.sh:1:1: no \"]]\" closes this");
  EXPECT_EQ(refused_shell("a )"), "run.sh:1:3: \")\" stands here alone; correct the script");
  const ShellSources sources = [](const std::string& path) { return path == "a" ? "x\nsource b\n" : "y\n\nif z\n"; };
  EXPECT_EQ(error_of<ConfigError>([&] { words_in("\n\n\nsource a", sources); }), "b:3:1: nothing closes this \"if\"");
  EXPECT_EQ(error_of<ConfigError>([&] { words_in("source a\nif", {}); }), "run.sh:2:1: nothing closes this \"if\"");
}

TEST(ShellReader, SizesAreLimited) {
  std::string doubles = "A=aaaaaaaaaaaaaaaa\n";
  for (int i = 0; i < 40; ++i) doubles += "A=$A$A\n";
  EXPECT_NE(refused_shell(doubles).find("more than 4 MiB once variables are replaced"), std::string::npos);
  std::string shifts = "set --";
  for (int i = 0; i < 1000; ++i) shifts += ' ' + std::string(100, 'a');
  for (int i = 0; i < 1000; ++i) shifts += "\nshift";
  EXPECT_NE(refused_shell(shifts).find("more than 4 MiB once variables are replaced"), std::string::npos);
  std::string doubts = "A=$(x); N=0\nwhile [ $N -lt 600 ]; do N=$((N+1))\n";  // each with a reason
  for (int i = 0; i < 100; ++i) doubts += "[ $A ]&&A=1\n";
  EXPECT_NE(refused_shell(doubts + "done").find("more than 4 MiB once variables are replaced"), std::string::npos);
  EXPECT_NE(refused_shell("run " + std::string(50'000, '{')).find("more than 4 MiB"), std::string::npos);
  std::string patterns = "case " + std::string(50'000, 'a') + " in ";
  for (int i = 0; i < 1000; ++i) patterns += "b|";
  EXPECT_NE(refused_shell(patterns + "c) x ;; esac").find("more than 4 MiB"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "${A:-";
  EXPECT_NE(refused_shell("run " + deep).find("more than 64 levels"), std::string::npos);
  std::string sums;
  for (int i = 0; i < 100; ++i) sums.insert(0, "$((").append("))");
  EXPECT_NE(refused_shell("run " + sums).find("more than 64 levels"), std::string::npos);
  std::string shells;
  for (int i = 0; i < 100; ++i) shells += "( ";
  EXPECT_NE(refused_shell(shells).find("more than 64 levels"), std::string::npos);
}

}  // namespace
}  // namespace trident
