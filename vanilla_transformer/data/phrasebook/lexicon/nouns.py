"""Nouns and adjectives: meaning decides which words meet, by the kind of each noun."""

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

# English subject, object and possessive; German nominative, accusative, dative and possessive. "you" is always "du".
PRONOUNS = """
    I      me     my      ich   mich   mir     mein
    you    you    your    du    dich   dir     dein
    he     him    his     er    ihn    ihm     sein
    she    her    her     sie   sie    ihr     ihr
    we     us     our     wir   uns    uns     unser
    they   them   their   sie   sie    ihnen   ihr
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
