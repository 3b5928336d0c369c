"""Words in names and cells of tables of answers as people write them, and their cells as text."""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from relpref.data.arrays import Array, Columns, Mask, Texts, counted
from relpref.data.labels import is_missing, trimmed
from relpref.data.tables import MISSING, Table, column_option


def terms(text: str) -> frozenset[str]:
    """Return the terms of a list with commas."""
    return frozenset(" ".join(text.split()).split(", "))


def _both(text: str) -> tuple[Texts, ...]:
    """Return the words of each term."""
    return tuple(tuple(term.split()) for term in text.split(","))


# Words by which the names of two columns differ that hold the two sides of an answer.
_SIDES = {
    kind: _both(names)
    for kind, names in re.findall(
        r"(\w+):([^:;]+)",
        """
        numbered: first second, 1 2, 0 1, one two, a b, x y, premier deuxieme, erste zweite,
            erster zweiter, primero segundo;
        left: left right, links rechts, gauche droite, izquierda derecha;
        home: home away, h v, home vis, home visitor, home guest, home road, host guest, host
            visitor, h a, h g, heim gast, heim auswarts, local visitante, mandante visitante,
            casa visitante, casa fora, casa ospite, casa trasferta, domicile exterieur, domicile
            visiteur, thuis uit, gospodarz gosc, hjemmelag bortelag, hjemme borte, hemmalag
            bortalag, hemma borta, hteam vteam;
        white: white black, w b, weiss schwarz, blanc noir, blancs noirs, blanche noire, blancas
            negras, bianco nero;
        team: team opponent, team opp, player opponent, fighter opponent, boxer opponent, club
            opponent;
        pro: aff neg, pro con, affirmative negative, proposition opposition, gov opp, government
            opposition, prop opp, for against;
        red: red blue, rot blau, rouge bleu, rojo azul, r b;
        blue: white blue;
        radiant: radiant dire;
        visitor: visitor opponent, v o;
        defender: defender challenger, champion challenger, incumbent challenger
        """,
    )
}
KIND_OF_SIDES = {sides: kind for kind, several in _SIDES.items() for sides in several}
SIDES = tuple(KIND_OF_SIDES)
# Sides that are a first and a second in names, and kinds of which neither is the first.
ORDERED = _SIDES["numbered"]
UNORDERED = terms("red, blue, radiant, visitor, defender")
# The same, where the first of them is the better one.
DECIDED = _both(
    """
    winner loser, w l, winning losing, won lost, better worse, chosen rejected, preferred rejected,
    preferred other, chosen other, accepted rejected, preferred dispreferred, selected rejected,
    sieger verlierer, gewinner verlierer, gagnant perdant, vainqueur perdant, vainqueur vaincu,
    ganador perdedor, vencedor perdedor, vincitore perdente
    """
)
# Words of a result of one side: it won, it lost.
RESULTS = _both(
    """
    win loss, win lose, won lost, w l t, sieg niederlage, victoire defaite, victoria derrota,
    vittoria sconfitta, gewonnen verloren, gagne perdu, ganado perdido, vinto perso, victory defeat
    """
)
# Cells of a side that won.
WON = terms("win, won, w, winner, sieg, Win, Won, W, Winner, Sieg, WIN, WON")
# Numbers and truths for the first, the second and a tie, where a cell is the one before them.
CODED = _both("-1 1 -1 0, 1 1 0 0.5, true true false, yes yes no")
# Short names of the goals of the two sides.
SHORT_GOALS = _both("fthg ftag, hg ag, hg vg, gf ga, pf pa, hruns vruns, hscore vscore, gl gv")
# Words for a number of things, and for things that are compared.
NUMBERS = terms("id, ids, key, code, uuid, index, idx, nr, no, number, num, name, title")
ITEMS = terms(
    """
    item, driver, horse, player, athlete, runner, candidate, option, rider, alternative, team,
    product, model, name, dish, wine, coffee, competitor, boat, car, brand, variety, fighter, boxer,
    club, pokemon, song, movie, film, generator, system, agent, bot, deck, character, sample,
    statement, image, photo, picture, object, school, beer, cheese, side, corner, contestant,
    participant, swimmer, skier, golfer, label, mannschaft, verein, spieler, equipe, joueur, equipo,
    jugador, squadra, athlet, sportler, sailor, helm, pilot, laufer, coureur, fahrer, pferd, cheval
    """
)
# Words in names of columns that hold numbers or texts of the two sides, but not their labels.
NOT_LABELS = terms(
    """
    rank, rating, elo, seed, score, scores, goals, points, pts, runs, wins, win, votes, vote,
    age, height, weight, length, tokens, count, hand, country, ioc, city, date, color, colour,
    odds, text, conversation, annotator, judge, rater, voter, evaluator,
    reviewer, stance, result, outcome, winner, loser, choice, preference, tore, goles, buts,
    comment, prob, probability, time, stadium, reason
    """
)
# Words in names of columns of texts about which answers are, which may be equal by chance.
TEXTS = terms("answer, response, output, completion, reply")
# Words in names of columns of what may be chosen in a quiz, too.
OPTIONS = terms("option, options, choice, alternative, opcion, opzione, auswahl")
# Words in names of columns of the right one of these.
RIGHT = terms("right, correct, truth, gold, solution, richtig, richtige, korrekt, correcta")
ANSWERS = terms("answer, antwort")
OUTCOMES = terms(
    """
    winner, result, outcome, label, preference, preferred, vote, choice, won, wins, win, ftr, ft,
    res, ergebnis, sieger, gewinner, resultat, resultado, risultato, ganador, gagnant, vainqueur,
    vencedor, vincitore, verdict, better, chosen, answer, antwort, esito, response, pick, picked,
    selected, selection, decision, judgment, judgement, score, wl, prefer, preferido, preferida,
    preferita, preferito, prefere, besser, mejor, choix, wahl, labels, prefers, press, keypress,
    victory, eleccion, scelta, satze, endstand, erg, winning, placar, marcador, punteggio,
    uitslag, wynik, quiniela
    """
)
# Names of outcomes whose 0 and 1 may also be numbers of the two sides.
OF_SIDES = terms(
    """
    winner, choice, chosen, preferred, better, pick, picked, selected, vote, preference, prefer,
    label, labels, judgment, judgement, decision, selection, answer, response
    """
)
# Words in names of columns that name a side of each answer for another reason.
DOUBTFUL = terms(
    """
    toss, coin, predicted, prediction, pred, expected, half, ht, htr, halftime, server, serve,
    serving, shown, first, kickoff, bat, batting, favorite, favourite, underdog, host, man,
    best, worst, loser, previous, prev, prior, last, h2h, low, lower, lowest, forecast, tip, tipp,
    favored, favoured, favorit, favori, prognose, pronostic, pronostico, not, out, worse, least,
    rejected, reject, disliked, dispreferred, unpreferred, eliminated, defeated, beaten, verlierer,
    verloren, schlechter, perdant, perdante, vaincu, pire, perdedor, perdedora, peor, perdente,
    peggiore, pior, verliezer, projected, bet, prob, partner, before, correct, optimal, avoid,
    avoided, unchosen, nonchosen, foregone, inferior, weaker, bad, unsafe
    """
)
GOALS = terms(
    """
    goals, goal, score, scores, points, pts, runs, sets, maps, legs, frames, tore, buts, goles,
    gol, gols, golos, reti, punkte, puntos, final, full, ft, g, total, placar, pen, pens, penalty,
    penalties, shootout, result, res, satze, gole, bramki
    """
)
COUNTED = terms("wins, win, votes, won, winner, prefer, prefers, preferred, chose, stimmen, voix")
# Names of columns that mark ties by true, and other words for a tie in cells.
TIE_NAMES = terms(
    """
    tie, ties, tied, draw, draws, drawn, equal, unentschieden, remis, gleichstand, nul, nulle,
    egalite, empate, pareggio
    """
)
TIES = TIE_NAMES | terms(
    """
    tievote, d, x, even, same, no preference, no pref, no difference, neutral, gleich, gleich gut,
    beide,
    both equal, both equally good, equally good, both good, both are good, both same,
    no clear preference, about equal,
    beide gleich, beide gleich gut, kein unterschied, egal, pareil, les deux, ambos, sin diferencia,
    entrambi, match nul, igual, tablas, ½, 1/2, 0.5, ½-½, ½–½, 1/2-1/2, =, both, tie neutral
    """
)
# Names of columns whose words for a tie count beside winner and loser.
BESIDE_LOSER = terms(
    "result, outcome, res, ergebnis, resultat, resultado, risultato, score, verdict, method"
)
BOTH_BAD = terms(
    """
    equally bad,
    tie bothbad, both bad, bothbad, both are bad, neither, tie both bad, aucun, aucune, keine,
    keiner, keines, keins, ninguno, ninguna, nessuno, nessuna
    """
)
# Answers that do not say whether neither side was preferred or nobody answered.
UNSURE = terms(
    """
    unsure, not sure, i am not sure, undecided, uncertain, don t know, i don t know, dont know,
    can t tell, cannot tell, can t decide, cannot decide, inconclusive, weiss nicht, ich weiss
    nicht, je ne sais pas, no se, no lo se, non so
    """
)
VOID = terms(
    """
    no result, nr, n/r, *, void, abandoned, cancelled, canceled, no contest, nc, postponed,
    walkover, walk over, w/o, w o, wo, forfeit, forfeited, ff, forfait, kampflos, bye, skip,
    skipped, unknown, dq, w/ff, l/ff, ff/w, ff/l, +/-, -/+, +:-, -:+, +--, --+, abgesagt, verlegt,
    verschoben, abgebrochen, annule, reporte, aplazado, suspendido, cancelado, rinviata, sospesa,
    annullata, adiado
    """
)
# Names of columns of remarks, which may say that nobody played for a result.
COMMENTS = terms(
    """
    comment, comments, note, notes, remark, remarks, bemerkung, bemerkungen, anmerkung, kommentar,
    commentaire, remarque, nota, notas, comentario, observaciones, status, details, reason
    """
)
NO_ITEM = terms(", -, –, none, skipped, overvote, undervote, exhausted, not ranked, unranked")
# Names of columns that may say how many equal answers a row stands for.
COUNTS = terms("0, votes, n, times, count, freq, frequency, number, voters, ballots, respondents")
# Names of columns that tell by true that the two sides of a row were exchanged.
SWAPPED = terms(
    """
    swapped, swap, flipped, flip, reversed, inverted, exchanged, switched, vertauscht,
    getauscht, inverse, invertido, intercambiado
    """
)
# The same, which tell by a side or a label what was shown first or on the left, or as AB and BA.
SHOWN = terms("shown, displayed, presented, presentation, order, position, left")
TRUE = terms("1, true, yes, ja, oui, si, sí")
FALSE = terms(", 0, false, no, nein, non")
# The same in columns that mark ties, where no letter is a label.
TIED, NOT_TIED = TRUE | terms("y, j, x"), FALSE | {"n"}

PLACES = terms(
    """
    place, position, rank, finish, pos, platz, rang, platzierung, placement, ranking, classement,
    puesto, posicion, posizione, finishing position, finish position, final position, final rank,
    race position, finish pos, finishing place, final place, rank order, rk, plc, pl, posicao,
    colocacao, classificacao, classificacion, placing, fin pos, placed, plats, plass, plads, sija,
    plaats, miejsce
    """
)
# Names of numbers of both sides of which the lower wins.
FEW_WIN = PLACES | terms("losses, defeats, niederlagen, defaites, derrotas, sconfitte")
# Names of columns that hold an order in each cell.
ORDERS = terms(
    """
    ranking, rankings, order, orders, ballot, preferences, reihenfolge, classement, rank,
    rangfolge, ordnen, sortieren, classez, ordena, ordene
    """
)
LAST = terms(
    r"""
    dnf, nc, ret, r, \n, retired, unplaced, did not finish, cut, mc, dnf1, dnf2, pu, f, ur, bd, ro,
    su, fell, pulled up, unseated rider, np
    """
)
OUT = terms(
    """
    dns, w, wd, withdrawn, dsq, dq, disqualified, did not start, scratched, dsq1, dnc, walkover,
    dai
    """
)
RATERS = terms(
    """
    judge, voter, annotator, rater, raters, evaluator, assessor, panelist, panellist, taster,
    individual, labeler, labeller, reviewer, juror, respondent, resp, participant, worker, user,
    person, tester, subject, session, grader, scorer, expert, critic, coder, customer, client,
    verkoster, prufer, richter, gutachter, bewerter, teilnehmer, nutzer, befragter, proband, wahler,
    jury, juge, degustateur, evaluateur, utilisateur, repondant, votant, juez, jurado, catador,
    evaluador,
    participante, usuario, encuestado, votante, giudice, assaggiatore
    """
)
MATCHES = terms(
    """
    match, game, battle, bout, fixture, fight, duel, combat, spiel, partie, begegnung, partido,
    partita, jogo, wedstrijd
    """
)
EVENTS = (RATERS | MATCHES) | terms(
    """
    list, race, event, heat, run, contest, ballot, round, tournament, question, task,
    trial, session, set, group, subject, block, choice, date, day, year, season, week, track, venue,
    stage, leg, meeting, competition, games, gp, prix, rennen, lauf, wettkampf, meet, course,
    epreuve, carrera, prueba, regatta, open, response, prompt, query, screen, survey, wettfahrt,
    wettbewerb, durchgang, manche, prova, etappe, etape, etapa, tappa, rodada, jornada, giornata,
    chid, case, situation, scenario,
    journee, spieltag, matchday, runde, ronda, auction, gameweek, wyscig, lopp, lob
    """
)
SCORES = terms(
    """
    score, time, points, pts, seconds, duration, marks, punkte, zeit, temps, tiempo, puntos,
    rating, ratings, stars, grade, total, value, distance, result, note, goals, runs, tore, buts,
    goles, gol, gols, wertung, bewertung, punktzahl, puntuacion, punteggio, nota,
    schulnote, noten, punkt, pkt, pkte, gesamtpunkte, wertnote, punti, puntaje, calificacion,
    voto, voti, bid, bids, gebot, enchere, puja
    """
)
# Words in names of columns that are no outcomes, even if their cells are words for two sides.
NOT_OUTCOMES = (
    NUMBERS
    | EVENTS
    | terms(
        """
    unnamed, side, sides, screen, position, order, sequence, gender, sex, sexe, geschlecht,
    sexo, condition, version, batch, arm, treatment, variant, correct, truth, gold, target,
    level, class, category, hand, handedness, phase, part, wave, cohort, sample, page, slide,
    device, home, neutral, flag, grade, quality, tier, split, fold, dataset, column, lost, loses,
    lose, loss, possession, leader, ranked, seeded, tv, broadcast, taker, kicked, captain,
    relegated, runner, baseline, reference, default, status, refused, hallucinated, error, flagged,
    dominated, excluded, thrown, discarded, removed, dropped, referee, venue, owner
    """
    )
)
# Words in names of outcomes that say something else of a side than whether it was preferred.
NO_VERDICTS = DOUBTFUL | NOT_LABELS - OUTCOMES - RATERS | NOT_OUTCOMES - RATERS
# Words beside those of outcomes, and beside those of a side in a cell, that say nothing more.
BESIDE = (
    ITEMS
    | NUMBERS
    | terms(
        """
    final, match, game, human, overall, full, time, ft, who, which, is, was, type, the, vote, wins,
    win, won, prefer, preferred, p, for, better, preference, about
    """
    )
)
# Words in cells beside that of a side, which say how clearly it was preferred.
DEGREES = terms(
    """
    strongly, slightly, somewhat, clearly, definitely, moderately, significantly, marginally,
    much, far, bit, little, very, strong, slight, moderate, weak, weakly
    """
)
CHOSEN = terms("chosen, choice, choose, selected, picked, choosen, purchased")
BEST = terms("best, b, most, beste, bester, bestes, meilleur, meilleure, mejor, migliore, melhor")
WORST = terms(
    "worst, w, least, schlechteste, schlechtester, schlechtestes, pire, peor, peggiore, pior"
)
EXTREMES = BEST - {"b"}, WORST - {"w"}
# Places by the words for them, and the words beside a place in the name of a column.
RANKS = {
    word: rank
    for text in (
        "first second third fourth fifth sixth seventh eighth ninth tenth",
        "gold silver bronze",
        "erste zweite dritte vierte funfte",
        "premier deuxieme troisieme quatrieme cinquieme",
        "primera segunda tercera cuarta quinta",
        "primero segundo tercero cuarto quinto",
    )
    for rank, word in enumerate(text.split(), 1)
}
PLACED = terms(
    """
    , rank, place, choice, position, preference, pick, favorite, top, platz, rang, wahl, choix,
    games, eleccion, opcion, preferencia
    """
)
# Words in names of columns of numbers that are no item, and no event.
NOT_ITEMS = NUMBERS - {"name"} | terms(
    """
    unnamed, age, total, sum, mean, average, avg, median, std, min, max, weight, count, n, alter,
    week, season, period,
    summe, mittel, gesamt, duration, income, size, zip, year, month, day, date, hour, jahr, monat,
    tag, ano, annee, mois, jour, mes, dia, temperature, temperatur, temperatura, temp, humidity,
    progress, finished, gc, overall, gesamtwertung, standing, latitude, longitude, lat, lon,
    altitude, elevation
    """
)
# Words in names of columns of differences of goals, which are above 0 for the side that won, and of
# scores that may say something else, too, such as how many sets there were.
MARGINS = terms(
    "margin, difference, diff, differenz, diferencia, ecart, differenza, differential, sets"
)
# Words for the side that may have an advantage, by how an answer says so.
ADVANTAGE = {
    "home": terms("home, heim, host, local, casa, domicile, mandante"),
    "white": terms("white, weiss, blancs, blanc, blancas, bianco"),
    "shown_first": terms("a, 1, first, left, links, gauche, izquierda"),
}
_LONG = "|".join(
    sorted({side for pair in SIDES + DECIDED for side in pair if len(side) > 3} - {"prop"})
)

_RISING = re.compile(
    r"(?i)\b(1 *(is|=|:) *(the )?worst|([2-9]|10) *(is|=|:) *(the )?best"
    r"|high(er|est)? *(is|=|:) *(the )?(best|better))\b"
).search


def plain(text: Any) -> str:
    """Return a text in small letters without accents."""
    text = str(text).casefold()
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", "".join(c for c in letters if not unicodedata.combining(c)))


@lru_cache(1 << 14, typed=True)
def words(name: Any) -> Texts:
    """Split a name into words, so that ``HomeTeam``, ``home_team`` and ``hometeam`` are equal."""
    text = re.sub(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[A-Z][a-z]{2}|[a-z]{4})", " ", str(name))
    text = plain(re.sub(r"(?<=[a-zß-ÿ])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", text))
    text = re.sub(rf"\b({_LONG}|vis(?=team))(?=[a-z]{{4}})", r"\1 ", text)
    return tuple(part for part in re.split(r"[\W_]+", text) if part)


class Reading(NamedTuple):
    """One way to read a table.

    Parameters
    ----------
    description : str
    table : callable
        Returns the table with the names used here.
    columns : dict
        The columns that it reads, by the names used here, where these say it all; otherwise empty.
    """

    description: str
    table: Callable[[], "Sheet"]
    columns: Columns = {}  # noqa: RUF012


Readings = Iterator[Reading]


@dataclass(frozen=True, eq=False)
class Sheet(Table):
    """A table of answers while its form is recognized.

    Parameters
    ----------
    named : set of str
        Names used here that the user gave to columns.
    better, unplaced, both_bad, unsure : str
        Options of reading, see `relpref.options`.
    """

    named: frozenset[str] = frozenset()
    better: str = ""
    unplaced: str = "last"
    both_bad: str = "tie"
    unsure: str = ""
    _cells: dict[Any, Array] = field(default_factory=dict, init=False)

    def words(self, column: Any) -> Texts:
        """Return the words of the name that a column was given."""
        return words(self.called(column))

    def parts(self, column: Any) -> frozenset[str]:
        """Return the different words of the name that a column was given."""
        return frozenset(self.words(column))

    def option(self, columns: Columns) -> str:
        """Return how a call and a command give columns names, by the names used here."""
        return column_option({ours: self.called(theirs) for ours, theirs in columns.items()})

    def noun(self, column: Any) -> frozenset[str]:
        """Return the words of a name without those for numbers, such as ``race`` of ``raceId``."""
        return self.parts(column) - NUMBERS

    def rises(self, column: Any) -> bool:
        """Tell whether a name says that the highest number is the best, as in 5 = best."""
        return bool(_RISING(str(self.called(column)).replace("_", " ")))

    def cells(self, column: Any) -> Array:
        """Return the cells as text: no blanks around, whole numbers without decimals."""
        if column not in self._cells:
            try:
                codes, distinct = pd.factorize(self.frame[column], use_na_sentinel=False)
            except TypeError:  # lists, which are neither labels nor answers
                return np.full(len(self.frame), "", dtype=object)
            texts = np.array([_text(cell) for cell in distinct.tolist()], dtype=object)
            if self.decimal == ",":
                texts[:] = [re.sub(r"^([+-]?\d+),(\d+)$", r"\1.\2", text) for text in texts]
            self._cells[column] = texts[codes]
        return self._cells[column]

    def marked(self, column: Any) -> Mask | None:
        """Tell which cells are words for true, a blank being false; None if some are others."""
        lower = mapped(str.lower, self.cells(column))
        ties = self.parts(column) & TIE_NAMES
        true, false = (TIED, NOT_TIED) if ties else (TRUE, FALSE)
        return np.isin(lower, [*true]) if {*lower} <= true | false else None

    def texts(self, columns: Iterable[Any]) -> Array:
        """Return the cells of some columns as text, shape (n, k)."""
        return np.array([*map(self.cells, columns)], dtype=object).T

    def is_named(self, column: Any, words: frozenset[str]) -> bool:
        """Tell whether the name of a column has these words alone, beside those for numbers."""
        return frozenset() < self.noun(column) <= words

    @property
    def is_crossed(self) -> bool:
        """Whether the items in the first column are names of columns, too: items by items."""
        items = self.cells(self.columns[0]) if len(self.columns) else ()
        return 1 < len(items) == len({*items}) and {*items} <= {*self.columns}


_MINUS = re.compile(r"^\u2212(?=\d)")
_WHOLE = re.compile(r"^([+-]?\d+)(\.|[.,]0)$")


def _text(cell: Any) -> str:
    if is_missing(cell):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    cell = str(trimmed(cell))
    if not cell[:1].isalpha():
        cell = re.sub(r"^([01]),5$", r"\1.5", _MINUS.sub("-", cell))
        cell = _WHOLE.sub(r"\1", cell)
    return "" if cell in MISSING else cell


def mapped(function: Callable[[Any], Any], cells: Iterable[Any]) -> list[Any]:
    """Return the values of a function at cells; equal cells are looked at once."""
    values = {cell: function(cell) for cell in {*cells}}
    return [values[cell] for cell in cells]


def cells_note(what: str, cells: Collection[str], are: str = "row") -> Texts:
    """Return a note on what is said of some cells, with their number and these, if any."""
    some = f"{what}: {counted(len(cells), are)} ({', '.join(sorted({*cells}))})"
    return (some,) * (len(cells) > 0)


def is_numeric(cells: Collection[str]) -> bool:
    """Tell whether all cells that are not blank are numbers, and some are."""
    given = set(cells) - {""}
    return bool(given) and all(re.fullmatch(r"[+-]?(\d+|\d*\.\d+)", cell) for cell in given)
