"""Verbs, with the German they govern and the kinds of nouns they take."""

# English base, past, participle and particle; German infinitive ("|" after a separable prefix), third person, perfect;
# what the German verb governs (a case, or a preposition and its case); its objects, as groups, kinds or nouns.
ACTIONS = """
    eat ate eaten                essen isst hat gegessen                  acc      food staple
    drink drank drunk            trinken trinkt hat getrunken             acc      drink
    cook cooked cooked           kochen kocht hat gekocht                 acc      soup rice potato egg
    cut cut cut                  schneiden schneidet hat geschnitten      acc      bread cheese meat cake apple
    buy bought bought            kaufen kauft hat gekauft                 acc      food staple drink reading goods
    sell sold sold               verkaufen verkauft hat verkauft          acc      clothing vehicle furniture house
    read read read               lesen liest hat gelesen                  acc      reading
    write wrote written          schreiben schreibt hat geschrieben       acc      book letter novel story
    wear wore worn               tragen trägt hat getragen                acc      clothing
    wash washed washed           waschen wäscht hat gewaschen             acc      dress coat shirt jacket car
    clean cleaned cleaned        putzen putzt hat geputzt                 acc      window door table bicycle
    repair repaired repaired     reparieren repariert hat repariert       acc      vehicle furniture device clock
    use used used                benutzen benutzt hat benutzt             acc      vehicle device camera knife umbrella
    look looked looked for       suchen sucht hat gesucht                 acc      thing reading clothing dog cat
    carry carried carried        tragen trägt hat getragen                acc      box bag chair table lamp
    open opened opened           öffnen öffnet hat geöffnet               acc      window door box bag letter
    close closed closed          schließen schließt hat geschlossen       acc      window door box bag
    turn turned turned on        ein|schalten schaltet hat eingeschaltet  acc      device
    turn turned turned off       aus|schalten schaltet hat ausgeschaltet  acc      device
    try tried tried on           an|probieren probiert hat anprobiert     acc      clothing
    put put put on               an|ziehen zieht hat angezogen            acc      dress coat shirt jacket skirt
    bring brought brought        mit|bringen bringt hat mitgebracht       acc      cake bread wine book umbrella
    paint painted painted        malen malt hat gemalt                    acc      nature animal
    draw drew drawn              zeichnen zeichnet hat gezeichnet         acc      building home nature animal
    build built built            bauen baut hat gebaut                    acc      house hotel boat bridge tower church
    rent rented rented           mieten mietet hat gemietet               acc      vehicle house
    feed fed fed                 füttern füttert hat gefüttert            acc      animal
    play played played with      spielen spielt hat gespielt              mit dat  dog cat
    call called called           an|rufen ruft hat angerufen              acc      people
    invite invited invited       ein|laden lädt hat eingeladen            acc      people
    pick picked picked up        ab|holen holt hat abgeholt               acc      people
    meet met met                 treffen trifft hat getroffen             acc      people
    visit visited visited        besuchen besucht hat besucht             acc      people
    ask asked asked              fragen fragt hat gefragt                 acc      people
    help helped helped           helfen hilft hat geholfen                dat      people
    thank thanked thanked        danken dankt hat gedankt                 dat      people
    answer answered answered     antworten antwortet hat geantwortet      dat      people
    follow followed followed     folgen folgt ist gefolgt                 dat      people
    listen listened listened to  zu|hören hört hat zugehört               dat      people
    wait waited waited for       warten wartet hat gewartet               auf acc  people
    talk talked talked to        sprechen spricht hat gesprochen          mit dat  people
"""

# What goes on in the mind, so that nobody has to or wants to.
THOUGHTS = """
    dream dreamed dreamed of  träumen träumt hat geträumt  von dat  vehicle house castle horse
    think thought thought of  denken denkt hat gedacht     an acc   people
"""

# Things that happen to people in a moment: English has no "is finding" for them.
ACHIEVEMENTS = """
    find found found         finden findet hat gefunden        acc  thing reading clothing dog cat
    lose lost lost           verlieren verliert hat verloren   acc  thing letter hat jacket
    forget forgot forgotten  vergessen vergisst hat vergessen  acc  bag key umbrella camera book jacket
"""

# States stay in the simple present. Attitudes are about something known: "likes the book", but hardly "likes a book".
STATES = """
    have had had        haben hat hat gehabt            acc  vehicle thing device animal home
    need needed needed  brauchen braucht hat gebraucht  acc  goods
    see saw seen        sehen sieht hat gesehen         acc  building home nature animal
"""

ATTITUDES = """
    like liked liked       mögen mag hat gemocht            acc  reading clothing animal building home nature
    know knew known        kennen kennt hat gekannt         acc  people
    love loved loved       lieben liebt hat geliebt         acc  relative
    trust trusted trusted  vertrauen vertraut hat vertraut  dat  people
    miss missed missed     vermissen vermisst hat vermisst  acc  people
"""

# Instead of objects: "place", "goal" (a place to go to), "city" (a city to go to), or adverbs from MANNERS.
INTRANSITIVES = """
    sleep slept slept           schlafen schläft hat geschlafen         place, well
    work worked worked          arbeiten arbeitet hat gearbeitet        place, alone
    wait waited waited          warten wartet hat gewartet              place, outside
    dance danced danced         tanzen tanzt hat getanzt                alone, outside
    sing sang sung              singen singt hat gesungen               loudly, well
    laugh laughed laughed       lachen lacht hat gelacht                loudly
    get got got up              auf|stehen steht ist aufgestanden       very early, late
    fall fell fallen asleep     ein|schlafen schläft ist eingeschlafen  very early, late
    wake woke woken up          auf|wachen wacht ist aufgewacht         very early, late
    arrive arrived arrived      an|kommen kommt ist angekommen          very early, late
    come came come back         zurück|kommen kommt ist zurückgekommen  late, alone
    stay stayed stayed          bleiben bleibt ist geblieben            place
    go went gone                gehen geht ist gegangen                 goal
    run ran run                 laufen läuft ist gelaufen               goal
    drive drove driven          fahren fährt ist gefahren               city
    travel travelled travelled  reisen reist ist gereist                city
    fly flew flown              fliegen fliegt ist geflogen             city
"""

MANNERS = """
    well         gut
    alone        allein
    outside      draußen
    loudly       laut
    very early   sehr früh
    late         spät
"""

# Who is given what: English and German as above, then the gifts.
GIVING = """
    give gave given    geben gibt hat gegeben          dat  thing book letter novel
    show showed shown  zeigen zeigt hat gezeigt        dat  thing book letter novel clothing
    send sent sent     schicken schickt hat geschickt  dat  letter book picture camera
    lend lent lent     leihen leiht hat geliehen       dat  thing vehicle book
"""

# What can be put where: only what may lie ("legen") on, under or next to a piece of furniture.
PLACING = """
    put put put  legen legt hat gelegt  acc  key bag book letter newspaper hat knife camera
"""

# What animals do: English; German third person singular, plural.
RESTING = """
    sleeping   schläft   schlafen
    lying      liegt     liegen
    sitting    sitzt     sitzen
"""

# English for the third person singular, for the plural; German infinitive, third person.
MODALS = """
    can               can               können    kann
    has to            have to           müssen    muss
    wants to          want to           wollen    will
    should            should            sollten   sollte
    would like to     would like to     möchten   möchte
    is allowed to     are allowed to    dürfen    darf
    will              will              werden    wird
"""

# English for the third person singular; German infinitive, third person, right bracket.
INFINITIVE_VERBS = """
    is trying to        versuchen   versucht   -
    is hoping to        hoffen      hofft      -
    has promised to     haben       hat        versprochen
    has forgotten to    haben       hat        vergessen
    has decided to      haben       hat        beschlossen
"""

# Verbs for which one goes somewhere, and verbs whose objects are counted.
PURPOSES = "buy, rent, look for, meet, visit, pick up, help"
COUNTED = "buy, sell, draw, find, have, need, see"

# Verbs that say little without a place, and still combine with every place.
LOCATED = "eat, drink, buy, read, write, look for, find, draw, try on"

# Verbs for what one remembers by its year.
HISTORIC = "sell, build, rent, write, draw, paint, meet, visit, travel, fly"

# Verbs for what happens by the clock.
APPOINTMENTS = "eat, drink, cook, open, close, feed, call, pick up, meet, visit, help, talk to, wait for, go, drive"
