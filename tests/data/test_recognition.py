"""Tables of answers as people write them: what is read from each, or why it is refused."""

import ast
import io
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.data.readings import words
from relpref.data.recognition import recognized
from relpref.data.tables import Table, read_table
from relpref.errors import DataError

Answers = Counter[tuple[frozenset[str], ...]]


def frame(text: str, *, typed: bool) -> pd.DataFrame:
    """Return CSV text as a table with cells as text, or typed as pandas reads them."""
    return pd.read_csv(
        io.StringIO(text.strip()), dtype=None if typed else object, keep_default_na=typed
    )


def read(table: pd.DataFrame, **options: Any) -> Answers:
    """Return how often each answer was given: labels by place, from the best."""
    data = PreferenceData.from_tables(answers=table, **options)
    answers, number = data.to_tables()[1], Counter[tuple[frozenset[str], ...]]()
    if "list" not in answers:
        for row in answers.to_dict("records"):
            ends = [str(row["winner"])], [str(row["loser"])]
            tied = [frozenset(ends[0] + ends[1])]
            number[tuple(tied if row.get("tie") else map(frozenset, ends))] += row["count"]
        return number
    for _, rows in answers.groupby("list"):
        places = pd.to_numeric(rows["place"]).fillna(float("inf"))
        items = [frozenset(map(str, rows["item"][places == place])) for place in sorted({*places})]
        number[tuple(items)] += int(rows["count"].iloc[0])
    return number


def parsed(text: str) -> Answers:
    """Return answers such as ``a>b=c; b=c*2``."""
    number = Counter[tuple[frozenset[str], ...]]()
    for answer in text.split("; "):
        order, _, times = answer.partition("*")
        number[tuple(frozenset(block.split("=")) for block in order.split(">"))] += int(times or 1)
    return number


# Tables, their answers, and options.
READ: dict[str, Any] = {
    "football": (
        """Div,Date,HomeTeam,AwayTeam,FTHG,FTAG,FTR,HTHG,HTAG,HTR
E0,13/08,Ayr,Bury,2,1,H,0,1,A
E0,14/08,Bury,Crewe,0,0,D,0,0,D
E0,15/08,Crewe,Ayr,1,3,A,1,0,H""",
        "Ayr>Bury; Bury=Crewe; Ayr>Crewe",
    ),
    "football, won away": (
        "home,away,FTR\na,b,A\nb,c,D\nc,a,A",
        "b>a; b=c; a>c",
    ),
    "football, goals only": (
        """date,home_team,away_team,home_score,away_score,neutral
d,Ayr,Bury,2,1,FALSE
d,Bury,Crewe,0,0,TRUE
d,Crewe,Ayr,1,3,FALSE""",
        "Ayr>Bury; Bury=Crewe; Ayr>Crewe",
    ),
    "German football": (
        "Datum,Heim,Gast,Ergebnis\n1,Ayr,Bury,2:1\n2,Bury,Crewe,0:0\n3,Crewe,Ayr,1:3",
        "Ayr>Bury; Bury=Crewe; Ayr>Crewe",
    ),
    "votes on models": (
        """question_id,model_a,model_b,winner,judge
1,x,y,model_a,j
2,y,z,tie,j
3,z,x,model_b,k
4,x,z,tie (bothbad),k""",
        "x>y; y=z; x>z; x=z",
    ),
    "one-hot votes": (
        """id,model_a,model_b,winner_model_a,winner_model_b,winner_tie
1,x,y,1,0,0
2,y,z,0,0,1
3,z,x,0,1,0""",
        "x>y; y=z; x>z",
    ),
    "chess": (
        """white,black,result,opening
ann,bob,1-0,C20
bob,cy,1/2-1/2,C21
cy,ann,0-1,C20
ann,cy,*,C20""",
        "ann>bob; bob=cy; ann>cy",
    ),
    "combats by number": (
        "First_pokemon,Second_pokemon,Winner\n266,298,298\n702,266,702\n298,702,702",
        "298>266; 702>266; 702>298",
    ),
    "tennis": (
        """tourney_id,winner_id,winner_name,winner_hand,loser_id,loser_name,loser_hand,score
1,100,ann,R,101,bob,L,6-4 6-2
1,101,bob,L,102,cy,R,7-5 6-4
1,100,ann,R,102,cy,R,6-0 6-0""",
        "ann>bob; bob>cy; ann>cy",
    ),
    "models chosen": (
        """prompt,chosen_model,rejected_model,chosen,rejected
p,x,y,long text,short text
q,y,z,a text,b text
r,x,z,c,d""",
        "x>y; y>z; x>z",
    ),
    "cricket": (
        """id,team1,team2,toss_winner,toss_decision,result,winner
1,A,B,B,bat,runs,A
2,B,C,B,field,no result,NA
3,C,A,A,bat,wickets,A""",
        "A>B; A>C",
    ),
    "wins of both sides": (
        "item1,item2,win1,tie,win2\na,b,3,1,2\nb,c,0,2,4",
        "a>b*3; b>a*2; c>b*4; a=b; b=c*2",
    ),
    "votes by side": (
        "left,right,vote\na,b,leftvote\nb,c,rightvote\nc,a,tievote\na,c,bothbad_vote",
        "a>b; c>b; c=a; a=c",
    ),
    "verdicts": ("model_a,model_b,verdict\nx,y,A>B\ny,z,A=B\nz,x,B>A", "x>y; y=z; x>z"),
    "verdicts on models called a and b": (
        "model_1,model_2,verdict\nb,a,1>2\na,c,2>1",
        "b>a; c>a",
    ),
    "1 and 2": (
        "item 1,item 2,choice\na,b,1\nb,c,2\nc,a,1.5",
        "a>b; c>b; c=a",
    ),
    "labels of 0 and 1": (
        "generator_1,generator_2,preference\nx,y,1\ny,z,0\nz,x,0.5",
        "x>y; z>y; z=x",
    ),
    "both sides of each answer": (
        "team,opponent,result\na,b,W\nb,a,L\nb,c,D\nc,b,D",
        "a>b; b=c",
    ),
    "canceled answers": (
        "home,away,result,was_cancelled\na,b,H,False\nb,c,A,True\nc,a,D,False",
        "a>b; c=a",
    ),
    "a label that is a word for a tie": (
        "p1,p2,winner\nx,b,x\nb,c,c\nc,x,draw",
        "x>b; c>b; c=x",
    ),
    "scores": (
        "p1,p2,score\na,b,3-1\nb,c,2-2\nc,a,0-4",
        "a>b; b=c; a>c",
    ),
    "races": (
        (
            "raceId,driverId,constructorId,grid,position,positionOrder,points\n1,ann,m,2,1,1,10\n"
            "1,bob,m,1,2,2,8\n1,cy,f,3,\\N,3,0\n2,ann,m,1,2,2,8\n2,cy,f,2,1,1,10"
        ),
        "ann>bob>cy; cy>ann",
    ),
    "races with those who did not start": (
        "race,horse,finish\n1,ann,1\n1,bob,DNF\n1,cy,2\n2,ann,DNS\n2,bob,1\n2,cy,2",
        "ann>cy>bob; bob>cy",
    ),
    "first to third": (
        "voter,1st,2nd,3rd\nv,a,b,c\nw,b,a,\nx,c,b,a",
        "a>b>c; b>a; c>b>a",
    ),
    "choices by rank": (
        "rank1,rank2,rank3\na,b,c\nb,a,c",
        "a>b>c; b>a>c",
    ),
    "a column an item": (
        "person,tuna,eel,squid,egg\np,1,2,3,4\nq,4,3,2,1\nr,2,1,3,4",
        "tuna>eel>squid>egg; egg>squid>eel>tuna; eel>tuna>squid>egg",
    ),
    "a column a race": (
        "boat,R1,R2,R3\nann,1,2,1\nbob,2,1,DNF\ncy,3,3,2\ndee,4,DNS,3",
        "ann>bob>cy>dee; bob>ann>cy; ann>cy>dee>bob",
    ),
    "best and worst by labels": (
        "best,worst,Item1,Item2,Item3\na,c,a,b,c\nb,a,a,b,c",
        "a>b>c; b>c>a",
    ),
    "best and worst by letters": (
        "best,worst,variety_a,variety_b,variety_c\nA,C,a,b,c\nB,A,a,b,c",
        "a>b>c; b>c>a",
    ),
    "best and worst by numbers": (
        "Best,Worst,item_1,item_2,item_3\n1,3,a,b,c\n2,1,a,b,c",
        "a>b>c; b>c>a",
    ),
    "best and worst by names": (
        "best,worst,item_1,item_2,item_3\nitem_1,item_3,a,b,c\nitem_2,item_1,a,b,c",
        "a>b>c; b>c>a",
    ),
    "bundesliga de": (
        """Spieltag,Heimmannschaft,Gastmannschaft,Tore Heim,Tore Gast
1,Bayern,Köln,3,1
1,Ulm,Bayern,0,0
2,Köln,Ulm,1,2""",
        "Bayern>Köln; Ulm=Bayern; Ulm>Köln",
    ),
    "hometeam lower": (
        """date,hometeam,awayteam,homescore,awayscore
2020-01-01,Ayr,Bury,2,1
2020-01-02,Bury,Cove,0,0
2020-01-03,Cove,Ayr,1,3""",
        "Ayr>Bury; Bury=Cove; Ayr>Cove",
    ),
    "fr rugby": (
        """Journée,Équipe domicile,Équipe extérieur,Score
1,Pau,Brive,12-6
2,Brive,Lyon,9–9
3,Lyon,Pau,3-30""",
        "Pau>Brive; Brive=Lyon; Pau>Lyon",
    ),
    "es liga": (
        """Jornada,Equipo Local,Equipo Visitante,Goles Local,Goles Visitante
1,Betis,Cádiz,2,1
2,Cádiz,Elche,0,0
3,Elche,Betis,0,1""",
        "Betis>Cádiz; Cádiz=Elche; Betis>Elche",
    ),
    "es resultado X": (
        "local,visitante,ganador\nBetis,Cádiz,local\nCádiz,Elche,empate\nElche,Betis,visitante",
        "Betis>Cádiz; Cádiz=Elche; Betis>Elche",
    ),
    "1X2": (
        "Team 1,Team 2,Result\nA1,B1,1\nB1,C1,X\nC1,A1,2",
        "A1>B1; B1=C1; A1>C1",
    ),
    "football-data extra": (
        """Country,League,Season,Date,Time,Home,Away,HG,AG,Res,PH,PD,PA
ARG,SL,2012,03/08/12,23:00,Arsenal,Union,1,0,H,1.9,3.3,4.1
ARG,SL,2012,03/08/12,23:00,Union,Velez,0,0,D,1.8,3.3,4.2
ARG,SL,2012,03/08/12,23:00,Velez,Arsenal,0,3,A,1.4,4.1,7.7""",
        "Arsenal>Union; Union=Velez; Arsenal>Velez",
    ),
    "odds and FTR": (
        """HomeTeam,AwayTeam,FTR,B365H,B365D,B365A
A1,B1,H,2.1,3.3,3.4
B1,C1,D,2.0,3.1,3.2
C1,A1,A,1.7,3.3,5""",
        "A1>B1; B1=C1; A1>C1",
    ),
    "ncaa kaggle": (
        """Season,DayNum,WTeamID,WScore,LTeamID,LScore,WLoc,NumOT
1985,20,1228,81,1328,64,N,0
1985,25,1106,77,1354,70,H,0
1985,25,1112,63,1228,56,H,0""",
        "1228>1328; 1106>1354; 1112>1228",
    ),
    "nba home wins": (
        """GAME_DATE,HOME_TEAM,VISITOR_TEAM,PTS_home,PTS_away,HOME_TEAM_WINS
1,Bulls,Heat,99,90,1
2,Heat,Nets,80,101,0
3,Nets,Bulls,100,98,1""",
        "Bulls>Heat; Nets>Heat; Nets>Bulls",
    ),
    "v_goals": (
        """game,visitor,opponent,v_goals,o_goals
1,Rangers,Devils,2,3
2,Devils,Flyers,1,1
3,Flyers,Rangers,4,0""",
        "Devils>Rangers; Devils=Flyers; Flyers>Rangers",
    ),
    "ufc": (
        """R_fighter,B_fighter,Referee,date,Winner,title_bout,R_age,B_age,R_Stance,B_Stance
Ann,Bo,x,1,Red,True,30,28,Orthodox,Southpaw
Bo,Cy,y,2,Blue,False,28,33,Southpaw,Southpaw
Cy,Ann,x,3,Draw,False,33,30,Southpaw,Orthodox""",
        "Ann>Bo; Cy>Bo; Cy=Ann",
    ),
    "boxing corner": (
        """red_corner,blue_corner,result,method
Ann,Bo,red,KO
Bo,Cy,blue,UD
Cy,Ann,no contest,
Cy,Ann,draw,MD""",
        "Ann>Bo; Cy>Bo; Cy=Ann",
    ),
    "atp": (
        (
            "tourney_id,tourney_date,winner_id,winner_seed,winner_name,loser_id,los"
            "er_seed,loser_name,score,w_ace,l_ace\nx,2020,1,,Ann Aa,2,,Bo Bb,6-4 6-2,3,2\n"
            "x,2020,2,,Bo Bb,3,4,Cy Cc,7-5 6-4,1,2\nx,2020,1,1,Ann Aa,3,,Cy Cc,6-0 6-0,4,0"
        ),
        "Ann Aa>Bo Bb; Bo Bb>Cy Cc; Ann Aa>Cy Cc",
    ),
    "tennis data": (
        """Date,Surface,Winner,Loser,WRank,LRank,W1,L1,B365W,B365L
1,Hard,Ann,Bo,3,10,6,4,1.2,4
2,Hard,Bo,Cy,10,20,6,3,1.5,2
3,Clay,Cy,Ann,20,3,7,5,4,1.1""",
        "Ann>Bo; Bo>Cy; Cy>Ann",
    ),
    "lichess": (
        (
            "game_id,rated,created_at,turns,victory_status,winner,white_id,white_ra"
            "ting,black_id,black_rating\n1,TRUE,1.5E12,13,outoftime,white,ann,1500,bob,1191\n"
            "2,FALSE,1.5E12,16,resign,black,bob,1322,cy,1261\n"
            "3,TRUE,1.5E12,61,draw,draw,cy,1496,ann,1500"
        ),
        "ann>bob; cy>bob; cy=ann",
    ),
    "chess pgn": (
        """Event,Round,White,Black,WhiteElo,BlackElo,Result,ECO
x,1,Ann,Bo,2500,2400,1-0,C20
x,2,Bo,Cy,2400,2300,1/2-1/2,C21
x,3,Cy,Ann,2300,2500,0-1,C22""",
        "Ann>Bo; Bo=Cy; Ann>Cy",
    ),
    "schach de": (
        "Runde,Weiß,Schwarz,Ergebnis\n1,Ann,Bo,1:0\n2,Bo,Cy,½:½\n3,Cy,Ann,0:1",
        "Ann>Bo; Bo=Cy; Ann>Cy",
    ),
    "blancs noirs": (
        "Ronde,Blancs,Noirs,Résultat\n1,Ann,Bo,1-0\n2,Bo,Cy,0.5-0.5\n3,Cy,Ann,0-1",
        "Ann>Bo; Bo=Cy; Ann>Cy",
    ),
    "chess score num": (
        "white_player,black_player,white_result\nAnn,Bo,1\nBo,Cy,0.5\nCy,Ann,0",
        "Ann>Bo; Bo=Cy; Ann>Cy",
    ),
    "chess black score": (
        "white_player,black_player,black_result\nAnn,Bo,0\nBo,Cy,0.5\nCy,Ann,1",
        "Ann>Bo; Bo=Cy; Ann>Cy",
    ),
    "wl_away": (
        "team_home,team_away,wl_away\nA1,B1,W\nB1,C1,L\nC1,A1,W",
        "B1>A1; B1>C1; A1>C1",
    ),
    "team opp W/L pts": (
        """Team,Opp,W/L,Pts,Opp Pts
Bulls,Heat,W,99,90
Heat,Bulls,L,90,99
Heat,Nets,L,80,101
Nets,Heat,W,101,80""",
        "Bulls>Heat; Nets>Heat",
    ),
    "cricket null": (
        """match_id,team_1,team_2,toss_winner,toss_decision,match_winner,win_by_runs
1,IND,AUS,AUS,bat,IND,20
2,AUS,ENG,AUS,field,No Result,0
3,ENG,IND,IND,bat,Tied,0
4,AUS,IND,IND,bat,AUS,3""",
        "IND>AUS; ENG=IND; AUS>IND",
    ),
    "ids and names": (
        """team1_id,team1_name,team2_id,team2_name,winner_id
10,Ann,20,Bo,10
20,Bo,30,Cy,30
30,Cy,10,Ann,10""",
        "Ann>Bo; Cy>Bo; Ann>Cy",
    ),
    "winner blank draw+goals": (
        "home_team,away_team,home_goals,away_goals,winner\nA1,B1,1,0,A1\nB1,C1,1,1,\nC1,A1,0,2,A1",
        "A1>B1; B1=C1; A1>C1",
    ),
    "tie column": (
        "option_a,option_b,winner,tie\nx,y,x,False\ny,z,,True\nz,x,x,False",
        "x>y; y=z; x>z",
    ),
    "is_draw int": (
        "player1,player2,winner,is_draw\nx,y,x,0\ny,z,,1\nz,x,x,0",
        "x>y; y=z; x>z",
    ),
    "casa ospite": (
        "Squadra casa,Squadra ospite,Risultato\nRoma,Bari,2-0\nBari,Como,1-1\nComo,Roma,0-3",
        "Roma>Bari; Bari=Como; Roma>Como",
    ),
    "overtime words": (
        "Home,Visitor,Score\nA1,B1,3-2 OT\nB1,C1,1-4\nC1,A1,2-1 (SO)",
        "A1>B1; C1>B1; C1>A1",
    ),
    "esports maps": (
        "Team A,Team B,Score A,Score B\nNavi,Faze,2,1\nFaze,Vita,0,2\nVita,Navi,1,2",
        "Navi>Faze; Vita>Faze; Navi>Vita",
    ),
    "debate aff neg": (
        "round,aff_team,neg_team,decision\n1,Yale,MIT,Aff\n1,MIT,Duke,Neg\n2,Duke,Yale,Aff",
        "Yale>MIT; Duke>MIT; Duke>Yale",
    ),
    "debate votes": (
        "pro_team,con_team,pro_votes,con_votes\nYale,MIT,3,2\nMIT,Duke,0,5\nDuke,Yale,1,4",
        "Yale>MIT*3; MIT>Yale*2; Duke>MIT*5; Duke>Yale; Yale>Duke*4",
    ),
    "arena": (
        """question_id,model_a,model_b,winner,judge,turn,anony,language,tstamp
1,gpt,llama,model_a,u1,1,True,English,1.0
2,llama,palm,tie,u2,2,True,German,2.0
3,palm,gpt,model_b,u3,1,True,English,3.0
4,palm,llama,tie (bothbad),u4,1,True,English,3.0""",
        "gpt>llama; llama=palm; gpt>palm; palm=llama",
    ),
    "arena drop bad": (
        """model_a,model_b,winner
gpt,llama,model_a
llama,palm,tie
palm,gpt,model_b
palm,llama,tie (bothbad)""",
        "gpt>llama; llama=palm; gpt>palm",
        {"both_bad": "drop"},
    ),
    "kaggle lmsys": (
        """id,model_a,model_b,prompt,response_a,response_b,winner_model_a,winner_model_b,winner_tie
1,gpt,llama,p,r,s,1,0,0
2,llama,palm,q,t,u,0,0,1
3,palm,gpt,q,v,w,0,1,0""",
        "gpt>llama; llama=palm; gpt>palm",
    ),
    "alpaca": (
        """instruction,generator_1,generator_2,preference,annotator
i,gpt,llama,1,c
j,llama,palm,2,c
k,palm,gpt,1.5,c""",
        "gpt>llama; palm>llama; palm=gpt",
    ),
    "genai": (
        """left_model,right_model,vote_type
sd,mj,leftvote
mj,dalle,tievote
dalle,sd,rightvote
dalle,mj,bothbad_vote""",
        "sd>mj; mj=dalle; sd>dalle; dalle=mj",
    ),
    "rlhf models": (
        """prompt,chosen_model,rejected_model,chosen,rejected,chosen_score
p,gpt,llama,some text,other,9
q,llama,palm,txt a,txt b,8
r,gpt,palm,txt c,txt d,7""",
        "gpt>llama; llama>palm; gpt>palm",
    ),
    "rlhf uneven": (
        "chosen-model,rejected-model,source\ngpt,llama,x\nllama,palm,x\ngpt,palm,y",
        "gpt>llama; llama>palm; gpt>palm",
    ),
    "human label words": (
        "system1,system2,label\nx,y,system1\ny,z,No preference\nz,x,system2",
        "x>y; y=z; x>z",
    ),
    "first better": (
        "first_item,second_item,response\nx,y,first\ny,z,second\nz,x,equal",
        "x>y; z>y; z=x",
    ),
    "left right de": (
        "links,rechts,Antwort\nx,y,links\ny,z,rechts\nz,x,unentschieden",
        "x>y; z>y; z=x",
    ),
    "pokemon": (
        """First_pokemon,Second_pokemon,Winner
266,298,298
702,701,701
191,668,668
298,266,298
266,702,702""",
        "298>266*2; 701>702; 668>191; 702>266",
    ),
    "ab counts": (
        "variant_a,variant_b,prefer_a,prefer_b,no_preference\nred,blue,30,20,5\nblue,green,10,25,0",
        "red>blue*30; blue>red*20; red=blue*5; blue>green*10; green>blue*25",
    ),
    "R citations": (
        "player1,player2,win1,win2\nBiometrika,JASA,730,498\nJASA,JRSS,813,1072",
        "Biometrika>JASA*730; JASA>Biometrika*498; JASA>JRSS*813; JRSS>JASA*1072",
    ),
    "baseball R": (
        "home.team,away.team,home.wins,away.wins\nMIL,DET,4,3\nDET,TOR,0,6",
        "MIL>DET*4; DET>MIL*3; TOR>DET*6",
    ),
    "features called weight and group": (
        """respondent,Price,Weight,Group,Result
1,1,2,3,4
2,2,1,4,3
3,1,3,2,4
4,4,1,2,3
5,1,2,3,4""",
        (
            "Price>Weight>Group>Result*2; Weight>Price>Result>Group; Price>Group>Weight>Result; "
            "Weight>Group>Result>Price"
        ),
    ),
    "features called weight and group, better": (
        "respondent,Price,Weight,Group,Result\n1,1,2,3,4\n2,2,1,4,3",
        "Price>Weight>Group>Result; Weight>Price>Result>Group",
        {"better": "low"},
    ),
    "golf": (
        """tournament,POS,PLAYER,TO PAR,R1,TOT
Open,T1,Ann,-3,70,140
Open,T1,Bo,-3,71,140
Open,3,Cy,-1,70,142
Open,CUT,Di,,75,
Masters,1,Cy,-5,68,138
Masters,T2,Di,0,71,143
Masters,T2,Bo,0,72,143
Masters,WD,Ann,,,""",
        "Ann=Bo>Cy>Di; Cy>Di=Bo",
    ),
    "shared places": (
        "list,item,place\n1,a,1st\n1,b,2=\n1,c,2=\n1,d,DNF\n2,b,1st\n2,a,2nd\n2,c,3rd\n2,d,4th",
        "a>b=c>d; b>a>c>d",
    ),
    "times of cities and years": (
        """race,year,runner,time
Rom,1,a,2:01:05
Rom,1,b,2:02:05
Rom,2,a,2:03:05
Rom,2,b,DNF
Bonn,1,a,2:05:59
Bonn,1,b,2:05:00
Bonn,2,a,2:05:59
Bonn,2,b,2:06:00""",
        "a>b*3; b>a",
        {"better": "low"},
    ),
    "all draws": ("home,away,result\na,b,D\nb,c,D\nc,a,D", "a=b; b=c; c=a"),
    "all drawn games": (
        "White,Black,Result\na,b,1/2-1/2\nb,c,1/2-1/2\nc,a,1/2-1/2",
        "a=b; b=c; c=a",
    ),
    "the best and the worst of features": (
        "resp,Price,Weight,Color,Size\n1,1,0,-1,\n2,,1,0,-1\n3,-1,,1,0",
        "Price>Weight>Color; Weight>Color>Size; Color>Size>Price",
        {"better": "high"},
    ),
    "swimming meets": (
        "meet,swimmer,time\n1,a,51.2\n1,b,52.1\n2,b,50.1\n2,a,53.1",
        "a>b; b>a",
        {"better": "low"},
    ),
    "survey better": (
        "respondent,statement 1,statement 2,Which is better?\n1,x,y,1\n1,y,z,2\n2,z,x,2",
        "x>y; z>y; x>z",
    ),
    "image ids": (
        """left_image,right_image,winner,category
51a,52b,left,safer
52b,53c,right,safer
53c,51a,equal,safer""",
        "51a>52b; 53c>52b; 53c=51a",
    ),
    "gewinner": (
        "Gewinner,Verlierer,Datum\nx,y,1\ny,z,2\nx,z,3",
        "x>y; y>z; x>z",
    ),
    "void bool": (
        "team_a,team_b,winner,abandoned\nx,y,x,no\ny,z,y,yes\nz,x,z,no",
        "x>y; z>x",
    ),
    "Sieger Platz": (
        "Mannschaft A,Mannschaft B,Sieger\nx,y,Mannschaft A\ny,z,B\nz,x,unentschieden",
        "x>y; z>y; z=x",
    ),
    "f1 results": (
        (
            "resultId,raceId,driverId,constructorId,number,grid,position,positionTe"
            "xt,positionOrder,points,laps,time\n1,18,ham,mc,22,1,1,1,1,10,58,1:34:50\n"
            "2,18,hei,bmw,3,5,2,2,2,8,58,+5.4\n3,18,ros,wil,7,7,\\N,R,3,0,20,\\N\n"
            "4,19,hei,bmw,3,1,1,1,1,10,56,1:31:18\n5,19,ham,mc,22,2,2,2,2,8,56,+2.1"
        ),
        "ham>hei>ros; hei>ham",
    ),
    "horse composite": (
        """date,track,race,horse,finish_position
2020-01-01,X,1,a,1
2020-01-01,X,1,b,2
2020-01-01,X,1,c,3
2020-01-02,X,1,d,1
2020-01-02,X,1,a,2
2020-01-02,X,2,b,1
2020-01-02,X,2,c,2""",
        "a>b>c; d>a; b>c",
    ),
    "skier": (
        "Rennen,Läufer,Platz\n1,Ann,1\n1,Bo,2\n1,Cy,DNF\n2,Bo,1\n2,Ann,2\n2,Cy,DNS",
        "Ann>Bo>Cy; Bo>Ann",
    ),
    "sail wide": (
        "Boat,Race 1,Race 2,Race 3\nann,1,2,1\nbob,2,1,DSQ\ncy,3,DNF,2\ndee,4,3,3",
        "ann>bob>cy>dee; bob>ann>dee>cy; ann>cy>dee",
    ),
    "podium": (
        "Games,Gold,Silver,Bronze\n1,NOR,GER,CAN\n2,GER,NOR,USA\n3,NOR,CAN,GER",
        "NOR>GER>CAN; GER>NOR>USA; NOR>CAN>GER",
    ),
    "ballot words": (
        "id,first_choice,second_choice,third_choice\n1,Ann,Bo,Cy\n2,Bo,Ann,\n3,Cy,Bo,Ann",
        "Ann>Bo>Cy; Bo>Ann; Cy>Bo>Ann",
    ),
    "rank n": (
        "voter,Rank 1,Rank 2,Rank 3,Rank 4\n1,Ann,Bo,Cy,Di\n2,Bo,Ann,Di,Cy",
        "Ann>Bo>Cy>Di; Bo>Ann>Di>Cy",
    ),
    "sushi wide": (
        "user,ebi,anago,maguro,ika\n1,1,2,3,4\n2,4,3,2,1\n3,1,3,2,4",
        "ebi>anago>maguro>ika; ika>maguro>anago>ebi; ebi>maguro>anago>ika",
    ),
    "horses as columns": (
        "race,Thunder,Bolt,Storm\n1,1,2,3\n2,2,1,\n3,3,1,2",
        "Thunder>Bolt>Storm; Bolt>Thunder; Bolt>Storm>Thunder",
    ),
    "times": (
        "heat,swimmer,time\n1,Ann,58.1\n1,Bo,59.3\n2,Bo,1:00.2\n2,Cy,59.9",
        "Ann>Bo; Cy>Bo",
        {"better": "low"},
    ),
    "points high": (
        "event,athlete,points\n1,Ann,900\n1,Bo,850\n1,Cy,850\n2,Bo,910\n2,Cy,700",
        "Ann>Bo=Cy; Bo>Cy",
        {"better": "high"},
    ),
    "ratings wide high": (
        "person,tea,coffee,water\np,5,3,4\nq,4,4,1\nr,3,2,5",
        "tea>water>coffee; tea=coffee>water; water>tea>coffee",
        {"better": "high"},
    ),
    "unplaced out": (
        "race,horse,finish\n1,a,1\n1,b,2\n1,c,DNF\n2,a,2\n2,c,1",
        "a>b; c>a",
        {"unplaced": "out"},
    ),
    "bw numbers": (
        "ResponseId,Best,Worst,Item 1,Item 2,Item 3,Item 4\nr1,1,3,x,y,z,w\nr2,2,4,x,y,z,w",
        "x>y=w>z; y>x=z>w",
    ),
    "bw most important": (
        """id,Attribute1,Attribute2,Attribute3,Most Important,Least Important
1,price,size,color,price,color
2,size,color,price,size,price""",
        "price>size>color; size>color>price",
    ),
    "bw long": (
        """respondent,task,item,choice
1,1,x,1
1,1,y,0
1,1,z,-1
1,2,x,0
1,2,y,1
1,2,w,-1
2,1,x,-1
2,1,z,1
2,1,w,0""",
        "x>y>z; y>x>w; z>w>x",
    ),
    "void answers beside goals": (
        "home,away,home_goals,away_goals,result\na,b,1,0,H\nb,c,0,0,abandoned\nc,a,0,2,A",
        "a>b; a>c",
    ),
    "the visitor first": (
        "AwayTeam,HomeTeam,HTR,FTR\nb,a,A,H\nc,b,H,D\na,c,H,A",
        "a>b; b=c; a>c",
    ),
    "winner, loser, draw": ("Winner,Loser,is_draw\na,b,0\nb,c,1\na,c,0", "a>b; b=c; a>c"),
    "races of several days": (
        "race,horse,jockey,rank\n1,a,j,1\n1,b,k,1\n1,c,l,3\n2,b,j,1\n2,a,k,2\n2,c,l,2",
        "a=b>c; b>a=c",
    ),
    "bw long values": (
        "block,object,value\n1,x,1\n1,y,0\n1,z,-1\n2,x,-1\n2,w,1\n2,y,0",
        "x>y>z; w>y>x",
    ),
    "conjoint long": (
        """respondent,question,brand,chosen
1,1,Fiat,1
1,1,Opel,0
1,1,Seat,0
1,2,Fiat,0
1,2,Opel,1
1,2,Kia,0
2,1,Seat,1
2,1,Kia,0
2,1,Fiat,0""",
        "Fiat>Opel=Seat; Opel>Fiat=Kia; Seat>Kia=Fiat",
    ),
    "results of the first as pandas writes them": (
        "p1,p2,outcome\na,b,1.0\nb,c,0.5\nc,a,0.0",
        "a>b; b=c; a>c",
    ),
    "sides as pandas writes them": (
        "item1,item2,choice\na,b,1.0\nb,c,2.0\nc,a,2.0",
        "a>b; c>b; a>c",
    ),
    "places as pandas writes them": (
        "race,horse,position\n1,a,2.0\n1,b,1.0\n1,c,\n2,a,1.0\n2,c,2.0",
        "b>a>c; a>c",
    ),
    "results with decimal commas": (
        'p1,p2,outcome\na,b,"1,0"\nb,c,"0,5"\nc,a,"0,0"',
        "a>b; b=c; a>c",
    ),
    "T beside W and L": (
        "Date,Team,Opp,Result\n1,A,B,W\n1,B,A,L\n2,B,C,W\n2,C,B,L\n3,A,C,T\n3,C,A,T",
        "A>B; B>C; A=C",
    ),
    "runs with bibs": (
        """run,bib,skier,rank
A,1,Anna,1
A,2,Bea,DNF
A,3,Cleo,2
B,1,Anna,2
B,2,Bea,1
B,3,Cleo,DNS""",
        "Anna>Cleo>Bea; Bea>Anna",
    ),
    "tasks of several respondents": (
        """resp,task,item,choice
1,1,a,1
1,1,b,0
1,1,c,-1
2,1,d,1
2,1,e,0
2,1,a,-1
1,2,b,1
1,2,d,-1
1,2,e,0""",
        "a>b>c; d>e>a; b>e>d",
    ),
    "ballots of towns": (
        "town,ballot,candidate,rank\nX,1,a,1\nX,1,b,2\nY,1,c,1\nY,1,d,2\nX,2,d,1\nX,2,a,2",
        "a>b; c>d; d>a",
    ),
    "choices of workers": (
        "hit,question,option,chosen\nw,1,a,1\nw,1,b,0\nv,1,a,0\nv,1,b,1\nv,2,c,1\nv,2,b,0",
        "a>b; b>a; c>b",
    ),
    "winner, loser and draws": (
        "winner,loser,result\na,b,win\nb,c,draw\na,c,win",
        "a>b; b=c; a>c",
    ),
    "winner, loser and a score": (
        "Winner,Loser,Score\na,b,2-1\nb,c,1-1\na,c,3-0",
        "a>b; b=c; a>c",
    ),
    "winner, loser and void answers": (
        "Sieger,Verlierer,Ergebnis,was_cancelled\na,b,win,no\nb,c,no contest,no\na,c,win,yes",
        "a>b",
    ),
    "neutral ground": (
        "home_team,away_team,home_score,away_score,neutral\na,b,2,1,TRUE\nb,c,0,1,FALSE\nc,a,0,0,TRUE",
        "a>b; c>b; c=a",
    ),
    "sides in a column of another name": (
        "left,right,clicked,screen_side\na,b,left,right\nb,c,right,right\nc,a,left,right",
        "a>b; c>b; c>a",
    ),
    "the markers of the pair in a column of another name": (
        "tea_a,tea_b,liked\nx,y,a\ny,z,b\nz,x,both",
        "x>y; z>y; z=x",
    ),
    "numbers of the pair in a column of another name": (
        "trial,song1,song2,tapped,age\n1,x,y,1,30\n2,y,z,2,31\n3,z,x,2,32",
        "x>y; z>y; x>z",
    ),
    "goals of H and G": (
        "Heimteam,Gastteam,Tore_H,Tore_G\na,b,3,2\nb,c,1,1\nc,a,0,4",
        "a>b; b=c; a>c",
    ),
    "legs of relays": (
        "race,team,leg1,leg2,rank\n1,A,10,11,1\n1,B,11,12,2\n2,A,10,12,2\n2,B,9,11,1",
        "A>B; B>A",
    ),
    "places with points": (
        "Rennen,Fahrer,Platz\n1,a,1.\n1,b,2.\n2,b,1.\n2,a,2.",
        "a>b; b>a",
    ),
    "ratings of participants": (
        "participant,apple,pear,plum\n1,5,3,2\n2,4,5,1\n3,1,2,4",
        "apple>pear>plum; pear>apple>plum; plum>pear>apple",
        {"better": "high"},
    ),
    "A B teams named A": (
        "a,b,winner\na,b,a\nb,a,a\na,c,c",
        "a>b*2; c>a",
    ),
}


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("typed", [False, True], ids=["text", "typed"])
def test_tables_are_read(name: str, typed: bool) -> None:
    text, answers, *options = READ[name]
    assert read(frame(text, typed=typed), **dict(*options)) == parsed(answers)


REFUSED = {
    "penalties": "home,away,home_goals,away_goals,shootout_winner\na,b,1,1,b\nb,c,2,0,\nc,a,0,1,",
    "results of the second alone": "a_name,b_name,result\nx,y,0\ny,z,0\nz,x,0",
    "outcomes before the game": "team1,team2,predicted_winner\na,b,b\nb,c,b\nc,a,c",
    "half time": "HomeTeam,AwayTeam,HTHG,HTAG\na,b,1,0\nb,c,1,1\nc,a,0,1",
    "groups of a test": "option_a,option_b,group\nx,y,A\ny,z,B\nz,x,A",
    "standings": "Team,Played,Won,Lost\na,3,2,1\nb,3,1,2\nc,3,1,2",
    "two kinds of items": "race,horse,rider,finish\n1,a,j,1\n1,b,k,2\n2,b,j,1\n2,a,k,2",
    "links": "source,target,weight\na,b,1\nb,c,1",
    "no opponent": "White,Black,Result\na,b,1-0\nb,c,0-1\nc,,1-0",
    "likert": "item_a,item_b,preference\na,b,-2\nb,c,1\nc,a,3",
    "esports wins": "blueTeam,redTeam,blueWin\nG2,T1,True\nT1,GEN,False\nGEN,G2,True",
    "times of cities and years no better": """race,year,runner,time
Rom,1,a,61
Rom,1,b,62
Rom,2,a,63
Rom,2,b,64
Bonn,1,a,65
Bonn,1,b,66
Bonn,2,a,67
Bonn,2,b,68""",
    "times no better": "heat,swimmer,time\n1,Ann,58.1\n1,Bo,59.3\n2,Bo,60.2\n2,Cy,59.9",
    "prices": "product,price\nx,3\ny,4",
    "leader scores": "model,elo\nx,1200\ny,1100",
    "one numeric": "name,score\nx,3\ny,4\nz,1",
    "ratings alone": "user,movie,rating\n1,x,5\n1,y,3\n2,x,4\n2,z,1",
    "toss only": "team1,team2,toss_winner\na,b,a\nb,c,c\nc,a,a",
    "two winners": "team1,team2,toss_winner,man_of_match_team\na,b,a,b\nb,c,c,b\nc,a,a,c",
    "id space": "player1,player2,winner_id\nann,bob,7\nbob,cy,9\ncy,ann,12",
    "elo only": "white,black,white_elo,black_elo\nann,bob,1500,1400\nbob,cy,1400,1300\ncy,ann,1300,1500",
    "draw team": "team1,team2,winner\nDraw,b,Draw\nb,c,b\nc,Draw,Draw",
    "A B only": "a,b,winner\na,b,a\nb,a,a\na,b,b",
    "winner 0/1": "model_a,model_b,winner\nx,y,0\ny,z,1\nz,x,1",
    "onehot two with tie": "model_a,model_b,winner_model_a,winner_model_b\nx,y,1,0\ny,z,0,1\nz,x,0,0",
    "two annotators": "model_a,model_b,annotator_1,annotator_2\nx,y,A,B\ny,z,B,B\nz,x,A,A",
    "agree annotators": "id,annotator_1,annotator_2\n1,A,B\n2,B,A\n3,A,B",
    "dup outcome disagree": "home,away,result,outcome\na,b,H,A\nb,c,A,A\nc,a,D,D",
    "cities": "home_city,away_city,attendance\nRome,Bari,3\nBari,Como,4\nComo,Rome,5",
    "numbers only": "x1,x2,y\n1,2,3\n2,3,4\n3,1,2",
    "regression": "a,b,label\n1,2,1\n2,3,0\n3,1,1",
    "race tie merged": "race,horse,odds\n1,a,2.0\n1,b,3.0\n2,a,1.5\n2,c,4",
    "a choice of three": "q,option1,option2,option3,choice\n1,a,b,c,b\n2,b,c,a,b\n3,c,b,a,c\n4,a,c,b,b",
    "champion challenger": "champion,challenger,winner\na,b,a\nb,c,c\nc,a,a",
}
SPOKEN = re.compile(r"columns=(\{[^}]*\})(?:, covariates=(\[.*?\]))?|better='(low|high)'").finditer


def obeyed(table: pd.DataFrame, message: str) -> list[Answers]:
    """Return what is read by each call that a message suggests."""
    calls: list[dict[str, Any]] = []
    for match in SPOKEN(message):
        columns, covariates, better = match.groups()
        call = {"columns": columns, "covariates": covariates}
        calls.append({name: ast.literal_eval(text) for name, text in call.items() if text})
        calls[-1] |= {"better": better} if better else {}
    return [read(table, **call) for call in calls]


def test_notes_show_cells_as_they_are_written() -> None:
    table = frame("race,driver,position\n1,a,1\n1,b,\\N\n1,c,DNF\n2,b,1\n2,a,2\n2,c,3", typed=False)
    notes = PreferenceData.from_tables(answers=table).notes
    assert "answers: 2 rows (DNF, \\N) are below all others of the event" in notes


def test_the_items_of_times_in_several_cities_and_years_can_be_named() -> None:
    text = "city,year,who,time\nRom,1,a,61\nRom,1,b,62\nRom,2,a,63\nRom,2,b,64\nBonn,1,a,65\n"
    table = frame(text + "Bonn,1,b,66\nBonn,2,a,67\nBonn,2,b,68", typed=False)
    with pytest.raises(DataError, match="several ways.*'item': 'who'") as caught:
        read(table, better="low")
    calls = [ast.literal_eval(match[1]) for match in SPOKEN(str(caught.value))]
    assert parsed("a>b*4") in [read(table, better="low", columns=call) for call in calls]


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("typed", [False, True], ids=["text", "typed"])
def test_tables_are_refused_and_what_is_suggested_works(name: str, typed: bool) -> None:
    table = frame(REFUSED[name], typed=typed)
    with pytest.raises(DataError) as caught:
        read(table)
    assert all(obeyed(table, str(caught.value)))


@pytest.mark.parametrize(
    ("text", "message", "answers"),
    [
        (
            "team1,team2,match_winner,winner\na,b,a,b\nb,c,b,b\nc,a,c,c",
            "several ways: .*'match_winner'.*'winner'",
            ["a>b; b>c; c>a", "b>a; b>c; c>a"],
        ),
        (
            "team1,team2,toss_winner,day_winner\na,b,a,b\nb,c,b,b\nc,a,c,c",
            "several ways: .*'toss_winner'.*'day_winner'",
            ["a>b; b>c; c>a", "b>a; b>c; c>a"],
        ),
        (
            "home,away,home_goals,away_goals,result\na,b,1,0,H\nb,c,1,0,A\nc,a,0,1,A",
            "several ways: .*'result'.*'home_goals'",
            ["a>b; c>b; a>c", "a>b; b>c; a>c"],
        ),
        (
            "model_a,model_b,winner\nx,y,0\ny,z,1\nz,x,1",
            "several ways: .*'y' wins in row 0.*'x' wins in row 0",
            ["y>x; y>z; z>x"],
        ),
        (
            "id1,id2,winner\n1,2,1\n2,1,1\n1,2,2",
            "several ways: .*'1' wins in row 1.*'2' wins in row 1",
            ["1>2*2; 2>1", "1>2; 2>1*2"],
        ),
        (
            "champion,challenger,winner\na,b,a\nb,c,c\nc,a,a",
            "every winner is in 'champion' or 'challenger'",
            ["a>b; c>b; a>c"],
        ),
        (
            "home_team,away_team,home_win\nx,y,0\ny,z,1\nz,x,1",
            "'home_win' .*no tie",
            ["y>x; y>z; z>x"],
        ),
        (
            "left,right,clicked,tapped\na,b,left,right\nb,c,right,right\nc,a,left,left",
            "several ways: .*'clicked'.*'tapped'",
            ["a>b; c>b; c>a", "b>a; c>b; c>a"],
        ),
        ("heat,item,time\n1,a,2.5\n1,b,3", "better='low'", ["a>b", "b>a"]),
        ("a,b,winner\nx,y,x\ny,z,?!\nz,x,z", "row 1 .*'winner': '\\?!' is neither a label", []),
        (
            "team1,team2,toss_winner\na,b,a\nb,c,c",
            "no column says who was preferred.*always 'team1'.*add the column 'winner'",
            ["a>b; b>c"],
        ),
        (
            "item_a,item_b,preference\na,b,-2\nb,c,1\nc,a,3",
            "how strongly one is preferred.*above 0 are for 'item_a'",
            ["b>a; b>c; c>a", "a>b; c>b; a>c"],
        ),
        (
            "tea,coffee,milk\n1,0,-1\n,-1,1\n0,1,-1",
            "each row has 1 and -1 once, in 'tea', 'coffee', 'milk'",
            ["tea>coffee>milk; milk>coffee; coffee>tea>milk"],
        ),
        ("Ann,Bob\nBob,Cy\nCy,Ann", "a line of names above, such as winner,loser", []),
        ("this,that\na,b\nb,c", "'this', 'that' are not recognized as answers", []),
        ("name,price\na,1\nb,2", "'name', 'price' are not recognized as answers", []),
        ("one,two\nx,1", "'one', 'two' are not recognized as answers", []),
        ("model_a,model_b,winner_model_a,winner_model_b\nx,y,1,0", "add 'winner_tie'", []),
        (
            "s,a,b,c\nx,1,2,3\ny,2,3,1\nz,3,1,2",
            "a row each.*or orders, a column each",
            ["a>b>c; c>a>b; b>c>a", "x>y>z; z>x>y; y>z>x"],
        ),
    ],
)
def test_refusals_name_the_ways_to_read_a_table(
    text: str, message: str, answers: list[str]
) -> None:
    table = frame(text, typed=True)
    with pytest.raises(DataError, match=message) as caught:
        read(table)
    assert obeyed(table, str(caught.value)) == [parsed(each) for each in answers]


@pytest.mark.parametrize(
    "text",
    [
        "winner,loser\na,b\nb,c",
        "winner,loser,x\na,b,1\nb,c,0",
        "first,second,result\na,b,1\nb,c,0",
        "list,item,place\n1,a,1\n1,b,2",
        "first,second,shown_first\na,b,a\nb,c,c",
    ],
)
def test_tables_with_our_names_are_left_alone(text: str) -> None:
    table = Table(frame(text, typed=False), "answers", text=True)
    pd.testing.assert_frame_equal(recognized(table).frame, table.frame)


@pytest.mark.parametrize("name", READ)
def test_readings_do_not_depend_on_order_case_or_separators(name: str) -> None:
    text, answers, *options = READ[name]
    table, draw = frame(text, typed=False), random.Random(name)
    labels = frozenset().union(*(block for order in parsed(answers) for block in order))
    columns = draw.sample([*table], len(table.columns))
    rows = table[columns].sample(frac=1, random_state=draw.randrange(99))
    for change in (
        str,
        lambda column: re.sub("[ _.-]", lambda _: draw.choice(" _.-"), column),
        str if re.search("[a-z][A-Z]", "".join(table)) or labels & {*table} else str.upper,
    ):
        changed = rows.rename(columns={column: change(column) for column in columns})
        assert read(changed, **dict(*options)) == parsed(answers)


def test_strengths_are_read() -> None:
    text = "model_a,model_b,verdict\nx,y,[[A>>B]]\ny,z,[[A=B]]\nz,x,[[B>A]]"
    data: Any = PreferenceData.from_tables(answers=frame(text, typed=True))
    assert data.comparisons.strength.tolist() == [2, 1, 0]
    text, ends = "p,q,score\nx,y,-3\ny,z,0\nz,x,1", {"first": "p", "second": "q"}
    data = PreferenceData.from_tables(
        answers=frame(text, typed=True), columns={**ends, "result": "score"}
    )
    assert data.comparisons.strength.tolist() == [3, 0, 1]


@pytest.mark.parametrize("text", ["Ann,Bob,Ann", "1,Ann,Bob,2,1", "2024-01-01,Ann,Bob"])
def test_names_are_suggested_where_the_first_row_is_an_answer(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"{text}\n{text.replace('Ann', 'Cy')}\n")
    with pytest.raises(DataError, match="the names of the columns may be missing") as caught:
        PreferenceData.from_tables(answers=file)
    line = str(caught.value).partition("such as ")[2].partition(" (")[0]
    file.write_text(f"{line}\n{file.read_text()}")
    assert PreferenceData.from_tables(answers=file).num_answers == 2


def test_covariates_and_sides_are_named_as_the_table_does() -> None:
    table = frame(
        "home_team,away_team,result,length_home,length_away,judge\n"
        "a,b,H,1,2,j\nb,c,A,3,5,k\nc,a,D,2,2.5,j",
        typed=True,
    )
    data: Any = PreferenceData.from_tables(answers=table, covariates=["length"])
    assert data.comparisons.covariates.T.tolist() == [[-1, 0.5, 2]]
    suggested = [note for note in data.notes if "columns=" in note]
    assert ["'rater': 'judge'" in note for note in suggested] == [True, False]
    assert "columns={'home': 'home_team'}" in suggested[1] and "covariates=['home']" in suggested[1]
    home: Any = PreferenceData.from_tables(
        answers=table, columns={"home": "home_team", "rater": "judge"}, covariates=["home"]
    )
    assert home.comparisons.covariates.T.tolist() == [[1, -1, -1]]
    assert home.comparisons.raters == ("j", "k")
    assert not any("columns=" in note for note in home.notes)
    shown: Any = PreferenceData.from_tables(answers=table, columns={"shown_first": "away_team"})
    assert shown.comparisons.shown_first.tolist() == [-1, 1, 1]
    ranks = frame("Winner,Loser,WRank,LRank\na,b,1,2\nb,c,2,7", typed=True)
    read_ranks: Any = PreferenceData.from_tables(answers=ranks, covariates=["rank"])
    assert read_ranks.comparisons.covariates.T.tolist() == [[-1, -5]]


@pytest.mark.parametrize(
    "name",
    [
        "Verkoster",
        "taster",
        "panelist",
        "user_id",
        "Session",
        "participant",
        "Prüfer",
        "juge",
        "juez",
    ],
)
def test_who_answered_is_named_in_many_words(name: str) -> None:
    table = frame(f"winner,loser,{name}\na,b,x\nb,c,y\na,c,x", typed=True)
    data: Any = PreferenceData.from_tables(answers=table)
    (note,) = (note for note in data.notes if "may say who answered" in note)
    call = ast.literal_eval(next(SPOKEN(note))[1])
    assert call == {"rater": name} and f"rater={name}" in note
    read_again: Any = PreferenceData.from_tables(answers=table, columns=call)
    assert read_again.comparisons.raters == ("x", "y")


def test_numbers_beside_the_items_are_no_items() -> None:
    rows = "tea,coffee,water\n5,3,4\n4,4,1\n3,2,5\n1,2,2"
    expected = parsed("tea>water>coffee; tea=coffee>water; water>tea>coffee; coffee=water>tea")
    for more in (
        "id,7,12,9,1",
        "year,3,4,3,5",
        "Temperatur,2,3,4,1",
        "humidity,51,60,70,55",
        "x,1,2,3,4",
        "gauge,4001,3500,4001,4001",
    ):
        cells = zip(rows.split("\n"), more.split(","), strict=True)
        table = frame("\n".join(map(",".join, cells)), typed=True)
        try:
            assert read(table, better="high") == expected
        except DataError as error:
            calls = [ast.literal_eval(match[1]) for match in SPOKEN(str(error))]
            assert expected in [read(table, better="high", columns=call) for call in calls]


def test_options_are_checked() -> None:
    table = frame("winner,loser\na,b", typed=True)
    with pytest.raises(DataError, match="better='up': .*better is low or high"):
        read(table, better="up")
    with pytest.raises(DataError, match="beter='low': there is no such option"):
        read(table, beter="low")
    with pytest.raises(DataError, match="better='low' is for times or points"):
        read(table, better="low")


def test_words_of_names() -> None:
    names = ["HomeTeam", "model_a_name", "R_fighter", "home.wins", "item1", "FTHG", "1st", "Item 2"]
    names += ["hometeam", "Heimmannschaft", "Wei\N{LATIN SMALL LETTER SHARP S}", "player1Name"]
    assert [" ".join(words(name)) for name in names] == [
        "home team", "model a name", "r fighter", "home wins", "item 1", "fthg", "1st", "item 2",
        "home team", "heim mannschaft", "weiss", "player 1 name",
    ]  # fmt: skip


def test_tables_that_were_read_from_files_are_recognized(tmp_path: Path) -> None:
    file = tmp_path / "matches.csv"
    file.write_bytes("Heim;Gast;Ergebnis\nKöln;Mainz;2:1\nBremen;Köln;0:2\n".encode("cp1252"))
    expected = PreferenceData.from_tables(answers=file)
    for data in (
        PreferenceData.from_tables(answers=file, encoding="cp1252"),
        PreferenceData.from_tables(answers=read_table(file)),
    ):
        assert data.labels == expected.labels == ("Köln", "Mainz", "Bremen")
        assert data.winner.tolist() == expected.winner.tolist()


def test_digits_that_are_no_numbers_are_no_places() -> None:
    with pytest.raises(DataError, match="is not a number"):
        read(pd.DataFrame({"winner": ["a"], "loser": ["b"], "count": ["¹"]}))
    with pytest.raises(DataError, match="there is no column 'winner'"):
        read(pd.DataFrame({"ner": ["a", "b"], "loser": ["007", "¹"], "count": ["2", "1"]}))


def test_times_of_events_whose_numbers_begin_again() -> None:
    rows = [("Rome", 1, "a", 9), ("Rome", 1, "b", 8), ("Oslo", 1, "c", 7), ("Oslo", 1, "d", 9)]
    rows += [("Rome", 2, "c", 9), ("Rome", 2, "a", 8), ("Oslo", 2, "b", 7), ("Oslo", 2, "d", 9)]
    table = pd.DataFrame(rows, columns=["town", "heat", "swimmer", "time"])
    with pytest.raises(DataError, match="in several ways.*'heat'.*'heat' and 'town'"):
        read(table, better="low")
    one = table[table["town"] == "Rome"]
    assert sum(read(one, better="low").values()) == 2


def test_notes_say_how_to_estimate_home_advantage_and_that_neutral_ground_is_not_used() -> None:
    text = "home_team,away_team,home_score,away_score,neutral\na,b,1,0,FALSE\nb,a,2,2,TRUE"
    table = frame(text, typed=False)
    notes = " ".join(PreferenceData.from_tables(answers=table).notes)
    assert "covariates=['home'] (--columns home=home_team --covariates home) estimates" in notes
    home: dict[str, Any] = {"columns": {"home": "home_team"}, "covariates": ["home"]}
    notes = " ".join(PreferenceData.from_tables(answers=table, **home).notes)
    assert "'neutral' is not used; leave 'home' blank" in notes


def test_times_and_points_that_disagree_are_two_readings() -> None:
    table = frame("heat,swimmer,time,points\n1,a,2.5,1.5\n1,b,3.5,0.5", typed=True)
    with pytest.raises(DataError, match="several ways: .*'time'.*or .*'points'") as caught:
        read(table, better="low")
    calls = [ast.literal_eval(match[1]) for match in SPOKEN(str(caught.value))]
    answers = [read(table, better="low", columns=columns) for columns in calls]
    assert answers == [parsed("a>b"), parsed("b>a")]
