"""Numbers, and expressions of place, time and mood that never change."""

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

# English before the hour, German before the hour; a half counts from the hour before in English only.
MINUTES = """
    five past       fünf nach
    ten past        zehn nach
    a quarter past  Viertel nach
    twenty past     zwanzig nach
    half past       halb
    twenty to       zwanzig vor
    a quarter to    Viertel vor
    ten to          zehn vor
    five to         fünf vor
"""

PUNCTUALITY = """
    already   schon
    almost    fast
    exactly   genau
    only      erst
"""

# What leaves and arrives by the clock.
TRANSPORT = """
    train   der Zug
    bus     der Bus
"""

# English, German; said of people because of something that has happened, or that may.
EMOTIONS = """
    happy        glücklich
    sad          traurig
    angry        wütend
    proud        stolz
    surprised    überrascht
"""

# What a person may be in spite of which life goes on.
HANDICAPS = """
    tired    müde
    sick     krank
    hungry   hungrig
    sad      traurig
"""

# English and German degree, which stands before the adjective.
DEGREES = """
    very       sehr
    too        zu
    not        nicht
    not very   nicht sehr
"""

WEATHER = """
    it rains             es regnet
    it snows             es schneit
    it is cold           es kalt ist
    the weather is good  das Wetter gut ist
"""

# The main clause and the conjunction of a reported clause.
REPORTS = """
    I know that               ich weiß, dass
    I think that              ich glaube, dass
    everybody knows that      alle wissen, dass
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
