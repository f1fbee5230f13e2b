"""Shells around an article, as six kinds of site have: menus, consent, scripts, state, drawings, links, footers.

The words are made up; what is realistic is the structure and the share of a page that is no text. `Shell.facts` are
sentences that stand outside the article, each with a question for it.
"""

# Markup stands in the lines that a site has it in, some of them long, with the marks that it writes.
# ruff: noqa: E501, RUF001

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

_TOPICS = (
    "Politics", "Markets", "Climate", "Science", "Books", "Travel", "Opinion", "Video", "Podcasts", "Health", "Cities",
    "Energy", "Design", "Schools", "Law", "Film", "Music", "Food", "Weather", "Sport",
)  # fmt: skip
_PEOPLE = ("Ines Calloway", "Tomás Brandt", "Priya Okafor", "Lena Virtanen", "Hugo Marchetti", "Sun-hi Park")
_HEADLINES = (
    "Council votes on the harbour plan after a long night", "Five bridges that engineers are watching closely",
    "Why the river festival moved to September this year", "A bakery, a patent and a very old oven",
    "The night train returns with three new stops", "Inside the archive that nobody catalogued",
    "Small dams, large questions: a map", "How a school orchestra bought its own hall",
)  # fmt: skip
_PLACES = ("Tallinn", "Porto", "Ghent", "Trieste", "Bergen", "Graz", "Lublin", "Cork")
_CONSENT = (
    "We value your privacy. We and our {n} partners store and access information on a device, such as cookies, and "
    "process personal data for personalised ads and content.",
    "This website uses cookies. Some of them are essential, while others help us to improve this website and your "
    "experience. You can change your choice at any time.",
    "Wir verwenden Cookies. Einige sind notwendig, andere helfen uns, dieses Angebot wirtschaftlich zu betreiben.",
)


@dataclass(frozen=True, slots=True)
class Fact:
    question: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Shell:
    """`html` is a page with the article in it, letter by letter."""

    html: str
    facts: tuple[Fact, ...]


Make = Callable[[str, str, Random], Shell]


def _facts(rng: Random) -> tuple[Fact, Fact, Fact]:
    place, person, hour = rng.choice(_PLACES), rng.choice(_PEOPLE), rng.randint(6, 11)
    percent, phone = rng.randint(11, 49), rng.randint(200000, 999999)
    return (
        Fact(f"What number does one call to reach the newsroom in {place}?",
             f"Newsroom in {place}: call +47 {phone} on weekdays from {hour} to 17."),
        Fact("Who is responsible for the content of this site under press law?",
             f"Responsible for the content under press law: {person}, {place}."),
        Fact("How much do subscribers save on the yearly plan?",
             f"Subscribers save {percent} percent on the yearly plan until the end of the month."),
    )  # fmt: skip


def _links(rng: Random, count: int, tag: str = "li") -> str:
    picked = [rng.choice(_TOPICS) for _ in range(count)]
    return "\n".join(
        f'    <{tag} class="m-{rng.randrange(99)}"><a href="https://www.example.org/{each.lower()}/{rng.randrange(9999)}'
        f'?ref=nav&amp;pos={n}" data-track="nav:{n}">{each}</a></{tag}>'
        for n, each in enumerate(picked)
    )


def _ads(rng: Random, count: int) -> str:
    lines = [
        f"  googletag.defineSlot('/21{rng.randrange(10**6)}/site_{rng.choice(_TOPICS).lower()}_{n}', [[300, 250], "
        f"[728, {rng.randrange(60, 300)}]], 'div-gpt-ad-{rng.randrange(10**12)}-{n}').addService(googletag.pubads());"
        for n in range(count)
    ]
    body = "\n".join(lines)
    return (
        "<script>\nvar googletag = googletag || {}; googletag.cmd = googletag.cmd || [];\ngoogletag.cmd.push(function() {\n"
        f"{body}\n  googletag.enableServices();\n}});\n</script>"
    )


# Bytes of a bundle for each of the article: of most sites' pages the article is a thirtieth.
_BUNDLED = 12


def _bundle(rng: Random, article: str) -> str:
    size = _BUNDLED * len(article.encode())
    names = [f"{chr(97 + rng.randrange(26))}{rng.randrange(99)}" for _ in range(40)]
    parts: list[str] = []
    while size > 0:
        a, b, c = rng.sample(names, 3)
        parts.append(
            f'function {a}(t,e){{for(var n=0;n<e.length&&t<{rng.randrange(999)};n++){{var r=e[n];"{b}"in r&&({c}=r.{b}||!1);'
            f'document.getElementById("{a}-{b}").innerHTML="<p>"+r.{c}+"</p>"}}return t.{c}}}'
        )
        size -= len(parts[-1])
    return f"<script>!function(){{{''.join(parts)}}}();</script>"


def _styles(rng: Random, count: int) -> str:
    rules = [
        f".c{rng.randrange(9999)}-{n}{{margin:0 {rng.randrange(40)}px;color:#{rng.randrange(16**6):06x};flex:1 1 auto}}"
        for n in range(count)
    ]
    return f"<style data-href='main.css'>{''.join(rules)}@media (min-width:{rng.randrange(400, 900)}px){{nav{{display:none}}}}</style>"


def _svg(rng: Random, count: int) -> str:
    def path() -> str:
        return " ".join(f"l{rng.uniform(-9, 9):.3f} {rng.uniform(-9, 9):.3f}" for _ in range(12))

    icons = "".join(
        f'<svg class="i" width="24" height="24" viewBox="0 0 24 24" aria-hidden="true"><title>{rng.choice(_TOPICS)}</title>'
        f'<path fill="currentColor" d="M12 2{path()}z"/></svg>'
        for _ in range(count)
    )
    return f'<div class="sprite">{icons}</div>'


def _linked_data(title: str, rng: Random) -> str:
    data = {
        "@context": "https://schema.org", "@type": "NewsArticle", "headline": title,
        "author": [{"@type": "Person", "name": rng.choice(_PEOPLE)}], "isAccessibleForFree": True,
        "publisher": {"@type": "Organization", "name": "The Example", "logo": "https://www.example.org/logo.png"},
    }  # fmt: skip
    return f'<script type="application/ld+json">{json.dumps(data)}</script>'


def _state(rng: Random, count: int) -> str:
    teasers = [
        {"id": rng.randrange(10**9), "slug": each.lower().replace(" ", "-"), "title": each, "tags": rng.sample(_TOPICS, 3),
         "image": {"src": f"/img/{rng.randrange(10**8)}.webp", "w": 640, "h": 360}}
        for each in (rng.choice(_HEADLINES) for _ in range(count))
    ]  # fmt: skip
    return f'<script id="__STATE__" type="application/json">{json.dumps({"feed": teasers, "build": rng.randrange(10**9)})}</script>'


def _cards(rng: Random, count: int, tag: str = "div") -> str:
    return "\n".join(
        f'<{tag} class="card"><a href="/s/{rng.randrange(10**7)}"><img src="/i/{rng.randrange(10**7)}.jpg" alt="" loading="lazy">'
        f"<h3>{rng.choice(_HEADLINES)}</h3></a><span>{rng.choice(_PEOPLE)} · {rng.randint(2, 12)} min</span></{tag}>"
        for _ in range(count)
    )


def _consent(rng: Random) -> str:
    return rng.choice(_CONSENT).format(n=rng.randint(90, 900))


def news(title: str, article: str, rng: Random) -> Shell:
    facts = _facts(rng)
    html = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title} | The Example</title>
{_linked_data(title, rng)}
{_styles(rng, 160)}
{_ads(rng, 40)}
</head>
<body class="page">
<!-- consent: {rng.randrange(10**6)} -->
<div id="cmp" role="dialog" aria-modal="true"><h2>Your choices</h2><p>{_consent(rng)}</p>
<button type="button">Accept all</button> <button type="button">Settings</button></div>
<header class="top"><a href="/">The Example</a>
<nav aria-label="Main"><ul>
{_links(rng, 24)}
</ul></nav></header>
{_svg(rng, 12)}
<main>
<article>
{article}
</article>
<aside class="promo"><h3>More from this section</h3>
{_cards(rng, 6)}
</aside>
</main>
<footer><ul>
{_links(rng, 18)}
</ul><p>{facts[0].sentence}</p><p>{facts[1].sentence}</p><p>© 2026 The Example. All rights reserved.</p></footer>
{_bundle(rng, article)}
</body></html>"""
    return Shell(html, facts[:2])


def application(title: str, article: str, rng: Random) -> Shell:
    """Divs all the way down, without landmarks or line ends, and the state that it was made from."""
    facts = _facts(rng)
    menu = _links(rng, 30, "div").replace("\n", "").replace("    ", "")
    html = (
        f'<!doctype html><html><head><meta name="viewport" content="width=device-width"><title>{title}</title>{_styles(rng, 220)}'
        f'</head><body><div id="__next"><div class="a1"><div class="a2"><div class="logo">Example Docs</div>{menu}</div>'
        f'<div class="b1"><div class="b2"><div class="crumbs"><a href="/">Home</a> / <a href="/docs">Docs</a></div>'
        f'<div class="b3">{article}</div><div class="b4">Was this page helpful? <button>Yes</button><button>No</button></div>'
        f'<div class="b5">{_cards(rng, 4)}</div></div><div class="toc">{_links(rng, 8, "div")}</div></div>'
        f'<div class="banner"><span>{facts[2].sentence}</span></div><div class="legal"><div>{facts[1].sentence}</div>'
        f"<div>{_consent(rng)}</div></div></div></div>{_state(rng, 40)}{_bundle(rng, article)}</body></html>"
    )
    return Shell(html, facts[1:])


def blog(title: str, article: str, rng: Random) -> Shell:
    facts = _facts(rng)
    html = f"""<html>
 <head>
  <title>{title} – A Blog</title>
  {_styles(rng, 240)}
  <script>window.dataLayer = window.dataLayer || []; function gtag(){{dataLayer.push(arguments);}} gtag('config', 'G-{rng.randrange(10**8)}');</script>
 </head>
 <body>
  <div id="wrap">
   <div id="head"><h1 class="site"><a href="/">A Blog</a></h1><p class="tag">Notes on this and that</p></div>
   <div id="menu"><ul>
{_links(rng, 10)}
   </ul></div>
   <div id="cols">
    <div id="left">
     <div class="post">
      {article}
      <div class="share">Share: <a href="https://social.example/share?u={rng.randrange(10**6)}">One</a> <a href="https://other.example/?s={rng.randrange(10**6)}">Two</a></div>
     </div>
     <div class="related"><h3>You may also like</h3><ul>
{_links(rng, 6)}
     </ul></div>
     <form action="/subscribe" method="post"><p>Get new posts by mail. No spam, unsubscribe at any time.</p><input type="email" name="e"><button>Subscribe</button></form>
    </div>
    <div id="right">
     <div class="widget"><h3>About</h3><p>{facts[1].sentence}</p></div>
     <div class="widget"><h3>Tags</h3>{_links(rng, 26, "span")}</div>
     <div class="widget"><h3>Archive</h3><ul>
{_links(rng, 22)}
     </ul></div>
    </div>
   </div>
   <div id="foot"><p>{facts[0].sentence}</p></div>
  </div>
  {_bundle(rng, article)}
 </body>
</html>"""
    return Shell(html, facts[:2])


def portal(title: str, article: str, rng: Random) -> Shell:
    """Tables for layout, upper case, ends that are forgotten."""
    facts = _facts(rng)
    rows = "".join(
        f'<TR><TD BGCOLOR="#{rng.randrange(16**6):06x}"><FONT SIZE=2><A HREF="/x{rng.randrange(9999)}.html">{rng.choice(_TOPICS)}</A></FONT>'
        for _ in range(22)
    )
    html = f"""<HTML><HEAD><TITLE>{title}</TITLE>
<SCRIPT LANGUAGE="JavaScript"><!--
var hits = {rng.randrange(10**6)}; document.write('<IMG SRC="/count.gif?' + hits + '">');
//--></SCRIPT>
{_styles(rng, 120)}
</HEAD><BODY BGCOLOR=white>
<CENTER><TABLE WIDTH=760 BORDER=0 CELLPADDING=0><TR><TD COLSPAN=3><B>Portal</B> | <A HREF="/">Start</A> | <A HREF="/map">Map</A>
<TR><TD VALIGN=top WIDTH=140><TABLE>{rows}</TABLE>
<TD VALIGN=top>
{article}
<TD VALIGN=top WIDTH=150><P><B>Notice</B><P>{facts[2].sentence}<P>{_links(rng, 12, "div")}
</TABLE></CENTER>
<HR><P><FONT SIZE=1>{facts[0].sentence}</FONT>
{_bundle(rng, article)}
</BODY></HTML>"""
    return Shell(html, (facts[0], facts[2]))


def help_centre(title: str, article: str, rng: Random) -> Shell:
    """Hidden panels, a banner at the end, sections in place of an article."""
    facts = _facts(rng)
    html = f"""<!DOCTYPE html><html><head><title>{title} - Help</title>{_styles(rng, 150)}{_linked_data(title, rng)}</head><body>
<a class="skip" href="#content">Skip to content</a>
<noscript><iframe src="https://tags.example.org/ns?id={rng.randrange(10**6)}" height="0" width="0"></iframe>Please enable JavaScript to use this site.</noscript>
<section class="bar"><ol class="crumbs"><li><a href="/">Help</a><li><a href="/t">Topics</a><li>{title}</ol>
<form role="search"><label>Search <input type="search" name="q"></label></form></section>
<section id="content"><section class="inner">
{article}
</section>
<section class="vote"><p>Was this article helpful? {rng.randrange(900)} out of 999 found this helpful.</p></section>
<section class="recent"><h2>Recently viewed articles</h2><ul>
{_links(rng, 7)}
</ul></section></section>
<div hidden><p>Your session has expired. Please sign in again to continue where you left off.</p></div>
<div style="display: none" class="modal"><p>{_consent(rng)}</p></div>
<section class="end">{_links(rng, 20, "span")}<p>{facts[1].sentence}</p><p>{facts[0].sentence}</p></section>
<div class="cookie-bar"><p>{_consent(rng)}</p><a href="#" role="button">OK</a></div>
{_state(rng, 30)}{_bundle(rng, article)}{_svg(rng, 6)}
</body></html>"""
    return Shell(html, facts[:2])


def magazine(title: str, article: str, rng: Random) -> Shell:
    """Long teasers below the article, as prose as it is, and web components."""
    facts = _facts(rng)
    teasers = "".join(
        f"<div class='t'><a href='/{rng.randrange(10**6)}'><h4>{rng.choice(_HEADLINES)}</h4></a>"
        f"<p>{rng.choice(_HEADLINES)}, and what {rng.choice(_PEOPLE)} of {rng.choice(_PLACES)} has to do with it.</p></div>"
        for _ in range(6)
    )
    html = f"""<!DOCTYPE html>
<html lang="en"><head><title>{title}</title>{_styles(rng, 180)}{_ads(rng, 30)}</head>
<body><site-header data-state='{{"user":null}}'><a href="/">Magazine</a><div class="nav">{_links(rng, 16, "span")}</div></site-header>
<div class="layout"><div class="story"><div class="body">
{article}
</div></div>
<div class="river">{teasers}</div>
<div class="subscribe"><p>{facts[2].sentence}</p><a class="btn" href="/join">Join</a></div></div>
<site-footer><p>{facts[1].sentence}</p>{_links(rng, 14, "span")}</site-footer>
{_state(rng, 30)}{_bundle(rng, article)}{_svg(rng, 8)}
</body></html>"""
    return Shell(html, facts[1:])


TUNED: tuple[Make, ...] = (news, application, blog)
HELD_OUT: tuple[Make, ...] = (portal, help_centre, magazine)
