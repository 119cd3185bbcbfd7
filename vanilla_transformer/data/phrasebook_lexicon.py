"""The words of the phrasebook: what :mod:`vanilla_transformer.data.phrasebook` makes its sentences of.

Every list is a table of text whose columns are separated by two or more blanks; the grammar is in the other module.
Meaning decides which words meet: a noun has one kind, and adjectives and verbs name the kinds (or single nouns) that
they go with.
"""

# English singular, plural; German nominative singular with its article, nominative plural. "Junge/Jungen" is a noun of
# the n-declension: its other singular cases follow the slash. "-" stands for a plural that nobody uses.
NOUNS = {
    "stranger": """
        man          men           der Mann               Männer
        woman        women         die Frau               Frauen
        girl         girls         das Mädchen            Mädchen
        boy          boys          der Junge/Jungen       Jungen
    """,
    "person": """
        child        children      das Kind               Kinder
        teacher      teachers      der Lehrer             Lehrer
        student      students      der Student/Studenten  Studenten
        neighbour    neighbours    der Nachbar/Nachbarn   Nachbarn
        colleague    colleagues    der Kollege/Kollegen   Kollegen
        doctor       doctors       der Arzt               Ärzte
        friend       friends       der Freund             Freunde
        guest        guests        der Gast               Gäste
    """,
    "relative": """
        mother       -             die Mutter             -
        father       -             der Vater              -
        sister       sisters       die Schwester          Schwestern
        brother      brothers      der Bruder             Brüder
        daughter     daughters     die Tochter            Töchter
        son          sons          der Sohn               Söhne
        aunt         aunts         die Tante              Tanten
        uncle        uncles        der Onkel              Onkel
    """,
    "animal": """
        dog          dogs          der Hund               Hunde
        cat          cats          die Katze              Katzen
        horse        horses        das Pferd              Pferde
        bird         birds         der Vogel              Vögel
        cow          cows          die Kuh                Kühe
    """,
    "food": """
        apple        apples        der Apfel              Äpfel
        egg          eggs          das Ei                 Eier
        cake         cakes         der Kuchen             Kuchen
        orange       oranges       die Orange             Orangen
        pear         pears         die Birne              Birnen
        potato       potatoes      die Kartoffel          Kartoffeln
    """,
    "staple": """
        bread        -             das Brot               -
        cheese       -             der Käse               -
        soup         -             die Suppe              -
        meat         -             das Fleisch            -
        rice         -             der Reis               -
    """,
    "drink": """
        coffee       -             der Kaffee             -
        tea          -             der Tee                -
        milk         -             die Milch              -
        water        -             das Wasser             -
        wine         -             der Wein               -
    """,
    "reading": """
        book         books         das Buch               Bücher
        letter       letters       der Brief              Briefe
        newspaper    newspapers    die Zeitung            Zeitungen
        novel        novels        der Roman              Romane
        story        stories       die Geschichte         Geschichten
    """,
    "clothing": """
        dress        dresses       das Kleid              Kleider
        coat         coats         der Mantel             Mäntel
        shirt        shirts        das Hemd               Hemden
        jacket       jackets       die Jacke              Jacken
        hat          hats          der Hut                Hüte
        skirt        skirts        der Rock               Röcke
    """,
    "vehicle": """
        car          cars          das Auto               Autos
        bicycle      bicycles      das Fahrrad            Fahrräder
        motorcycle   motorcycles   das Motorrad           Motorräder
        boat         boats         das Boot               Boote
    """,
    "furniture": """
        table        tables        der Tisch              Tische
        chair        chairs        der Stuhl              Stühle
        bed          beds          das Bett               Betten
        sofa         sofas         das Sofa               Sofas
        cupboard     cupboards     der Schrank            Schränke
    """,
    "thing": """
        bag          bags          die Tasche             Taschen
        key          keys          der Schlüssel          Schlüssel
        umbrella     umbrellas     der Regenschirm        Regenschirme
        clock        clocks        die Uhr                Uhren
        cup          cups          die Tasse              Tassen
        glass        glasses       das Glas               Gläser
        camera       cameras       die Kamera             Kameras
        picture      pictures      das Bild               Bilder
        knife        knives        das Messer             Messer
        box          boxes         die Kiste              Kisten
    """,
    "device": """
        lamp         lamps         die Lampe              Lampen
        radio        radios        das Radio              Radios
        computer     computers     der Computer           Computer
    """,
    "opening": """
        window       windows       das Fenster            Fenster
        door         doors         die Tür                Türen
    """,
    "home": """
        house        houses        das Haus               Häuser
        garden       gardens       der Garten             Gärten
    """,
    "building": """
        hotel        hotels        das Hotel              Hotels
        church       churches      die Kirche             Kirchen
        museum       museums       das Museum             Museen
        castle       castles       das Schloss            Schlösser
        tower        towers        der Turm               Türme
        bridge       bridges       die Brücke             Brücken
        university   universities  die Universität        Universitäten
    """,
    "nature": """
        tree         trees         der Baum               Bäume
        mountain     mountains     der Berg               Berge
        river        rivers        der Fluss              Flüsse
        lake         lakes         der See                Seen
        flower       flowers       die Blume              Blumen
    """,
}

# Names for several kinds at once.
GROUPS = {
    "people": "stranger person relative",
    "goods": "clothing vehicle furniture thing device",
}

# English; German, after a slash the stem that its endings are added to where that differs; the kinds and nouns it fits.
ADJECTIVES = """
    old          alt            man woman teacher doctor friend animal building house goods tree
    young        jung           man woman teacher doctor student animal
    new          neu            colleague neighbour goods home hotel museum book
    big          groß           animal food furniture box bag glass picture building home lake tree window boat
    small        klein          animal food furniture box bag knife picture child girl boy home lake river boat
    tall         groß           man woman student
    high         hoch/hoh       mountain tower bridge
    beautiful    schön          woman horse bird cat clothing picture clock castle bridge lake home flower story
    ugly         hässlich       dog clothing sofa lamp picture tower
    red          rot            clothing vehicle sofa chair bag umbrella cup flower apple
    blue         blau           clothing vehicle sofa chair bag umbrella cup door
    green        grün           clothing vehicle sofa chair bag umbrella door apple
    black        schwarz        clothing vehicle bag umbrella dog cat horse
    white        weiß           clothing vehicle cup table lamp dog cat horse house
    expensive    teuer/teur     clothing vehicle furniture camera clock device hotel wine cheese meat
    cheap        billig         clothing vehicle furniture camera clock device hotel wine cheese meat
    dark         dunkel/dunkl   church castle house museum jacket coat
    friendly     freundlich     stranger relative child teacher student neighbour colleague doctor guest dog
    famous       berühmt        man woman doctor student church castle museum bridge university novel picture tower
    happy        glücklich      stranger child
    sad          traurig        stranger child book story novel letter
    tired        müde/müd       stranger child teacher student doctor guest relative animal
    sick         krank          stranger child neighbour colleague relative animal
    rich         reich          man woman neighbour doctor friend aunt uncle
    polite       höflich        boy girl student colleague guest neighbour letter
    hungry       hungrig        child girl boy guest student animal
    clever       klug           people dog
    fresh        frisch         bread meat milk food
    hot          heiß           soup coffee tea milk potato
    cold         kalt           drink soup
    sweet        süß            cake orange pear apple wine
    sour         sauer/saur     apple orange milk
    good         gut            food staple drink reading teacher doctor friend student hotel camera computer knife
    long         lang           reading dress coat skirt river bridge
    short        kurz           letter novel story dress skirt
    boring       langweilig     reading museum
    interesting  interessant    reading museum picture castle
    heavy        schwer         furniture box bag
    fast         schnell        vehicle horse computer
    comfortable  bequem         bed chair sofa jacket coat
    broken       kaputt         vehicle chair bed umbrella clock cup glass camera device
    clean        sauber         clothing cup glass knife table window hotel river lake
    dirty        schmutzig      clothing cup glass knife table window bag river car
"""

# What nothing is "very" or "too".
UNGRADED = "red blue green black white broken famous fresh"

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
    paint painted painted        malen malt hat gemalt                    acc      building home nature animal
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

# English place, English goal; German place, German goal.
PLACES = """
    in the garden      into the garden     im Garten        in den Garten
    in the kitchen     into the kitchen    in der Küche     in die Küche
    in the park        to the park         im Park          in den Park
    in the city        to the city         in der Stadt     in die Stadt
    in the forest      into the forest     im Wald          in den Wald
    at the station     to the station      am Bahnhof       zum Bahnhof
    at the airport     to the airport      am Flughafen     zum Flughafen
    at the lake        to the lake         am See           zum See
    on the beach       to the beach        am Strand        an den Strand
    at school          to school           in der Schule    zur Schule
    at home            home                zu Hause         nach Hause
    at the hotel       to the hotel        im Hotel         ins Hotel
    at the office      to the office       im Büro          ins Büro
    at the museum      to the museum       im Museum        ins Museum
"""

CITIES = """
    Berlin    Berlin
    Hamburg   Hamburg
    Munich    München
    Cologne   Köln
    Vienna    Wien
    Zurich    Zürich
    Rome      Rom
    London    London
"""

# Two-way prepositions: the dative says where something is, the accusative where it goes.
SPATIAL_PREPOSITIONS = """
    on           auf
    under        unter
    next to      neben
    behind       hinter
"""

# Name, and the pronoun that stands for it.
NAMES = """
    Anna    she
    Maria   she
    Laura   she
    Julia   she
    Peter   he
    Paul    he
    David   he
    Martin  he
"""

# English subject, object and possessive; German nominative, accusative, dative and possessive. "you" is always "du".
PRONOUNS = """
    I      me     my      ich   mich   mir     mein
    you    you    your    du    dich   dir     dein
    he     him    his     er    ihn    ihm     sein
    she    her    her     sie   sie    ihr     ihr
    we     us     our     wir   uns    uns     unser
    they   them   their   sie   sie    ihnen   ihr
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

FREQUENCIES = """
    often       oft
    always      immer
    never       nie
    sometimes   manchmal
    rarely      selten
    usually     meistens
"""

FUTURE_TIMES = """
    today          heute
    tomorrow       morgen
    tonight        heute Abend
    next week      nächste Woche
    next month     nächsten Monat
    this weekend   dieses Wochenende
"""

PAST_TIMES = """
    yesterday       gestern
    last night      gestern Abend
    last week       letzte Woche
    last month      letzten Monat
    last year       letztes Jahr
    an hour ago     vor einer Stunde
    a week ago      vor einer Woche
    a month ago     vor einem Monat
    two days ago    vor zwei Tagen
    two weeks ago   vor zwei Wochen
    three years ago  vor drei Jahren
"""

WEEKDAYS = """
    Monday      Montag
    Tuesday     Dienstag
    Wednesday   Mittwoch
    Thursday    Donnerstag
    Friday      Freitag
    Saturday    Samstag
    Sunday      Sonntag
"""

# English, German, days.
MONTHS = """
    January     Januar      31
    February    Februar     29
    March       März        31
    April       April       30
    May         Mai         31
    June        Juni        30
    July        Juli        31
    August      August      31
    September   September   30
    October     Oktober     31
    November    November    30
    December    Dezember    31
"""

# English, German; said of people because of something that has happened, or that may.
EMOTIONS = """
    happy        glücklich
    sad          traurig
    angry        wütend
    proud        stolz
    surprised    überrascht
"""

# English comparative, German comparative; the kinds and nouns that are compared with one another.
COMPARATIVES = """
    older             älter           people
    younger           jünger          people
    taller            größer          people
    bigger            größer          building
    more expensive    teurer          vehicle clothing furniture device
    cheaper           billiger        vehicle clothing furniture device
    better            besser          reading
    longer            länger          reading
    more beautiful    schöner         clothing castle church garden lake
    faster            schneller       vehicle
"""

# English for the third person singular, for the plural; German infinitive, third person, right bracket.
INFINITIVE_VERBS = """
    is trying to        are trying to        versuchen   versucht   -
    is hoping to        are hoping to        hoffen      hofft      -
    has promised to     have promised to     haben       hat        versprochen
    has forgotten to    have forgotten to    haben       hat        vergessen
    has decided to      have decided to      haben       hat        beschlossen
"""

# The main clause and the conjunction of a reported clause.
REPORTS = """
    I know that               ich weiß, dass
    I think that              ich glaube, dass
    we hope that              wir hoffen, dass
    she says that             sie sagt, dass
    he has heard that         er hat gehört, dass
    I do not know whether     ich weiß nicht, ob
    he is asking whether      er fragt, ob
    we want to know whether   wir wollen wissen, ob
    nobody knows whether      niemand weiß, ob
"""

# English, then German, from zero to nineteen and by tens from twenty.
NUMBERS = """
    zero one two three four five six seven eight nine ten
    eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen

    null eins zwei drei vier fünf sechs sieben acht neun zehn
    elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn
"""
TENS = """
    twenty thirty forty fifty sixty seventy eighty ninety

    zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig
"""

# English, then German, from the first to the nineteenth; the German ones decline like adjectives and lack their ending.
ORDINALS = """
    first second third fourth fifth sixth seventh eighth ninth tenth
    eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth

    erst zweit dritt viert fünft sechst siebt acht neunt zehnt
    elft zwölft dreizehnt vierzehnt fünfzehnt sechzehnt siebzehnt achtzehnt neunzehnt
"""

# What leaves and arrives by the clock.
TRANSPORT = """
    train   der Zug
    bus     der Bus
"""

# English before the hour, German before the hour; a half counts from the hour before in English only.
MINUTES = """
    five past      fünf nach
    ten past       zehn nach
    quarter past   Viertel nach
    twenty past    zwanzig nach
    half past      halb
    twenty to      zwanzig vor
    quarter to     Viertel vor
    ten to         zehn vor
    five to        fünf vor
"""

# What animals do: English; German third person singular, plural.
RESTING = """
    sleeping   schläft   schlafen
    lying      liegt     liegen
    sitting    sitzt     sitzen
"""

# What a person may be in spite of which life goes on.
HANDICAPS = """
    tired    müde
    sick     krank
    hungry   hungrig
    sad      traurig
"""

WEATHER = """
    it rains             es regnet
    it snows             es schneit
    it is cold           es kalt ist
    the weather is good  das Wetter gut ist
"""

# English and German degree, which stands before the adjective.
DEGREES = """
    very       sehr
    too        zu
    not        nicht
    not very   nicht sehr
"""

# Verbs for which one goes somewhere, and verbs whose objects are counted.
PURPOSES = "buy, rent, look for, meet, visit, pick up, help"
COUNTED = "buy, sell, draw, find, have, need, see"
# Verbs that say little without a place, and still combine with every place.
LOCATED = "eat, drink, buy, read, write, look for, find, draw, try on"
# Verbs for what one remembers by its year.
HISTORIC = "sell, build, rent, write, draw, paint, meet, visit, travel, fly"

PUNCTUALITY = """
    already   schon
    almost    fast
    exactly   genau
    only      erst
"""

# Verbs for what happens by the clock.
APPOINTMENTS = "eat, drink, cook, open, close, feed, call, pick up, meet, visit, help, talk to, wait for, go, drive"
