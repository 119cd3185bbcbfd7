"""The words of the phrasebook. Columns of tables are two or more blanks apart.

Adjectives and verbs name the kinds of nouns, or single nouns, that they go with, so that sentences make sense.
"""

# Kind; English singular and plural, German singular with its article and plural, "-" where nobody uses it. The form
# after a slash is the accusative and dative.
NOUNS = """
    stranger   man men der Mann Männer, woman women die Frau Frauen, boy boys der Junge/Jungen Jungen
    stranger   girl girls das Mädchen Mädchen
    person     child children das Kind Kinder, doctor doctors der Arzt Ärzte, friend friends der Freund Freunde
    person     teacher teachers der Lehrer Lehrer, student students der Student/Studenten Studenten
    relative   mother - die Mutter -, sister sisters die Schwester Schwestern
    relative   father - der Vater -, brother brothers der Bruder Brüder
    animal     dog dogs der Hund Hunde, cat cats die Katze Katzen, horse horses das Pferd Pferde
    reading    book books das Buch Bücher, letter letters der Brief Briefe, newspaper newspapers die Zeitung Zeitungen
    clothing   coat coats der Mantel Mäntel, dress dresses das Kleid Kleider, jacket jackets die Jacke Jacken
    vehicle    car cars das Auto Autos, bicycle bicycles das Fahrrad Fahrräder
    thing      key keys der Schlüssel Schlüssel, bag bags die Tasche Taschen, picture pictures das Bild Bilder
    furniture  table tables der Tisch Tische, chair chairs der Stuhl Stühle, bed beds das Bett Betten
    device     lamp lamps die Lampe Lampen, radio radios das Radio Radios
    food       apple apples der Apfel Äpfel, egg eggs das Ei Eier, cake cakes der Kuchen Kuchen, soup - die Suppe -
    drink      coffee - der Kaffee -, milk - die Milch -, water - das Wasser -
    building   house houses das Haus Häuser, castle castles das Schloss Schlösser, church churches die Kirche Kirchen
"""

# English; German, with the stem for its endings after a slash where that differs; the nouns that it describes.
ADJECTIVES = """
    old        alt         stranger relative teacher doctor friend animal clothing vehicle thing furniture device house
    young      jung        man woman teacher student doctor animal
    new        neu         clothing vehicle thing furniture device house
    big        groß        animal bag picture furniture apple egg cake building
    small      klein       child girl boy animal bag key picture furniture device cake building
    red        rot         book clothing vehicle bag chair lamp apple
    blue       blau        book clothing vehicle bag chair lamp
    expensive  teuer/teur  clothing vehicle picture furniture device
    good       gut         teacher student doctor friend reading food drink
    friendly   freundlich  stranger person relative dog
    tired      müde/müd    stranger child relative student doctor animal
    sad        traurig     stranger child book letter
    hot        heiß        soup coffee milk water
    cold       kalt        soup coffee milk water
"""
DEGREES = {"very": "sehr", "too": "zu", "not": "nicht"}
UNGRADED = ("red", "blue", "new")  # nothing is "too red"
FEELINGS = {"happy": "glücklich", "sad": "traurig", "angry": "wütend"}  # because of something
HANDICAPS = {"tired": "müde", "sick": "krank", "sad": "traurig"}  # life goes on in spite of these

# English subject, object, possessive; German nominative, accusative, dative, possessive; person. "you" is "du".
PRONOUNS = """
    I     me    my     ich  mich  mir    mein    0
    you   you   your   du   dich  dir    dein    1
    he    him   his    er   ihn   ihm    sein    2
    she   her   her    sie  sie   ihr    ihr     2
    we    us    our    wir  uns   uns    unser   3
    they  them  their  sie  sie   ihnen  ihr     4
"""
NAMES = {"Anna": "she", "Maria": "she", "Peter": "he", "Paul": "he"}

# English base, third person, gerund, past, and what follows; German infinitive ("|" after a separable prefix), third
# person, perfect; what the German verb governs; its objects; its gifts. A verb without objects has adverbials. One
# whose gerund is "-" is never progressive, and one whose past is "-" is a state.
VERBS = """
    read reads reading read               lesen liest hat gelesen                  acc      reading
    buy buys buying bought                kaufen kauft hat gekauft                 acc      reading clothing vehicle bag
    eat eats eating ate                   essen isst hat gegessen                  acc      food
    drink drinks drinking drank           trinken trinkt hat getrunken             acc      drink
    look looks looking looked for         suchen sucht hat gesucht                 acc      thing reading animal
    turn turns turning turned on          ein|schalten schaltet hat eingeschaltet  acc      device
    try tries trying tried on             an|probieren probiert hat anprobiert     acc      clothing
    call calls calling called             an|rufen ruft hat angerufen              acc      people
    invite invites inviting invited       ein|laden lädt hat eingeladen            acc      people
    help helps helping helped             helfen hilft hat geholfen                dat      people
    listen listens listening listened to  zu|hören hört hat zugehört               dat      people
    wait waits waiting waited for         warten wartet hat gewartet               auf acc  people
    talk talks talking talked to          sprechen spricht hat gesprochen          mit dat  people
    give gives giving gave                geben gibt hat gegeben                   dat      people   thing reading apple
    find finds - found                    finden findet hat gefunden               acc      thing reading animal
    lose loses - lost                     verlieren verliert hat verloren          acc      thing letter jacket
    have has - -                          haben hat hat gehabt                     acc      animal vehicle device
    need needs - -                        brauchen braucht hat gebraucht           acc      clothing vehicle thing chair
    see sees - -                          sehen sieht hat gesehen                  acc      animal vehicle building
    like likes - -                        mögen mag hat gemocht                    acc      reading animal building
    know knows - -                        kennen kennt hat gekannt                 acc      people
    sleep sleeps sleeping slept           schlafen schläft hat geschlafen          -        place
    work works working worked             arbeiten arbeitet hat gearbeitet         -        place
    get gets getting got up               auf|stehen steht ist aufgestanden        -        hour
    arrive arrives arriving arrived       an|kommen kommt ist angekommen           -        hour
    go goes going went                    gehen geht ist gegangen                  -        goal
"""
KNOWN_OBJECTS = ("like", "know")  # verbs that take "the book", and hardly "a book"

# English for the third person singular, for the others; German in five persons.
MODALS = {
    "will": ("will", "werde wirst wird werden werden"),
    "can": ("can", "kann kannst kann können können"),
    "has to": ("have to", "muss musst muss müssen müssen"),
    "wants to": ("want to", "will willst will wollen wollen"),
}
ADVERBIALS = {
    "place": {"in the park": "im Park", "in the city": "in der Stadt", "at home": "zu Hause"},
    "goal": {"to the park": "in den Park", "to the city": "in die Stadt", "home": "nach Hause"},
    "hour": {"early": "früh", "late": "spät", "at six o'clock": "um sechs Uhr", "at half past six": "um halb sieben"},
}
POSITIONS = {"on": "auf", "under": "unter", "next to": "neben", "behind": "hinter"}
TIMES = {  # by the tense that they go with
    "simple": {"on Mondays": "montags", "on Fridays": "freitags"},
    "progressive": {"today": "heute", "on Monday": "am Montag", "on Friday": "am Freitag"},
    "past": {"yesterday": "gestern", "last week": "letzte Woche", "two days ago": "vor zwei Tagen"},
    "will": {"tomorrow": "morgen", "next week": "nächste Woche", "on Monday": "am Montag", "on Friday": "am Freitag"},
}
FREQUENCIES = {"": "", "often": "oft", "always": "immer", "never": "nie", "sometimes": "manchmal"}
CONDITIONS = {"if it rains": "wenn es regnet", "if the weather is good": "wenn das Wetter gut ist"}
REPORTS = {
    "I know that": "ich weiß, dass",
    "we think that": "wir glauben, dass",
    "everybody knows that": "alle wissen, dass",
    "nobody knows whether": "niemand weiß, ob",
    "she is asking whether": "sie fragt, ob",
}
