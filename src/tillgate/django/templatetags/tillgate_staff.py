"""`{% load tillgate_staff %}`: icons, badges, and amounts without their currency, for every page
that staff reads.
"""

from django import template

from tillgate.django import words
from tillgate.django.amounts import typed_text
from tillgate.django.pages.showing import badge

register = template.Library()

register.simple_tag(words.icon, name="icon")
register.simple_tag(badge, name="badge")
register.filter("bare_money", typed_text)
