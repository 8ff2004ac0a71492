"""`{% load tillgate_staff %}`: icons and badges, for every page that staff reads."""

from django import template

from tillgate.django.staff import words
from tillgate.django.staff.showing import badge

register = template.Library()

register.simple_tag(words.icon, name="icon")
register.simple_tag(badge, name="badge")
