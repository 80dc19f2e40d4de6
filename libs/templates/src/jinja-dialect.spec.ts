import { translate } from './jinja-dialect.js';
import { TemplateSet } from './template-set.js';

const values = {
  ...{ a: 'Ann', b: 'Bob', n: 8, x: 2.345, nothing: null, yes: true, no: false, d: { k: 'v' } },
  ...{ fmt: '<{}>', evil: `<script>"x" & 'y'/` },
};
const render = (source: string, name = 'page.html', more: readonly (readonly [string, string])[] = []): string =>
  new TemplateSet(new Map([[name, source], ...more]), {}, { publicBaseUrl: '/' }).render(name, values);
/** The engine and Jinja2 write the same character in two ways. */
const sameEntities = (text: string): string => text.replaceAll('&#x27;', '&#39;');

// What Jinja2 3.1 makes of them.
const rendered: [source: string, result: string][] = [
  ['{{ "%.1f" % 1.25 }}', '1.2'],
  ['{{ "%.1f"|format(x) }}', '2.3'],
  ['{{ "%s and %s" % (a, b) }}', 'Ann and Bob'],
  ["{{ '%s' % a.upper() }}", 'ANN'],
  ['{{ "%d of %5d|%-5d|%05d|%+d" % (1, 2, 3, 4, 5) }}', '1 of     2|3    |00004|+5'],
  ["{{ \"%(a)s-%(n)03d\" % {'a': a, 'n': 7} }}", 'Ann-007'],
  ['{{ "%(a)s"|format(a=a) }}', 'Ann'],
  ['{{ "100%%" % () }}', '100%'],
  ['{{ 7 % 3 }}', '1'],
  ['{{ n % 3 }}', '2'],
  [
    '{{ "%x %X %o %e %g %g" % (255, 255, 8, 12345.678, 0.0001, 1234567.0) }}',
    'ff FF 10 1.234568e+04 0.0001 1.23457e+06',
  ],
  ['{{ "%s" % nothing }}', 'None'],
  ['{{ "%5.2f|%-8s|%8s|%.2s" % (x, a, a, a) }}', ' 2.35|Ann     |     Ann|An'],
  ['{{ "{} {}".format(a, b) }}', 'Ann Bob'],
  ['{{ "{1} {0} {n}".format(a, b, n=3) }}', 'Bob Ann 3'],
  [
    "{{ \"{:.1f} {:>5} {:<5}| {:^5} {:05d} {:,}\".format(x, 'r', 'l', 'm', 42, 1234567) }}",
    '2.3     r l    |   m   00042 1,234,567',
  ],
  ['{{ "{:.0%} {:+d} {:x}".format(0.25, 3, 255) }}', '25% +3 ff'],
  ['{{ fmt.format(a) }}', '&lt;Ann&gt;'],
  ['{{ "The quick brown fox jumps"|truncate(12) }}', 'The...'],
  ['{{ "The quick brown fox jumps"|truncate(12, true) }}', 'The quick...'],
  ['{{ "The quick brown fox jumps"|truncate(12, False, \'!\', leeway=0) }}', 'The quick!'],
  ['{{ "The quick"|truncate(5) }}', 'The quick'],
  ['{{ "The quick brown fox"|wordwrap(10) }}', 'The quick\nbrown fox'],
  ['{{ "abcdefghijklmno pq"|wordwrap(6) }}', 'abcdef\nghijkl\nmno pq'],
  ['{{ "one two\\nthree four"|wordwrap(7) }}', 'one two\nthree\nfour'],
  ['{{ "a b c d"|wordwrap(3, wrapstring=\'+\') }}', 'a b+c d'],
  ['{{ "a\\nb\\n\\nc"|indent }}', 'a\n    b\n\n    c'],
  ['{{ "a\\nb\\n\\nc"|indent(2, true, true) }}', '  a\n  b\n  \n  c'],
  ['{{ "a\\nb"|indent(\'> \') }}', 'a\n&gt; b'],
  ['{{ "<b>"|forceescape }}', '&lt;b&gt;'],
  ['{{ ("<b>"|safe)|forceescape }}', '&lt;b&gt;'],
  ["<p{{ {'class': 'a \"b\"', 'id': none}|xmlattr }}>", '<p class="a &quot;b&quot;">'],
  ['{{ nothing }}', 'None'],
  ['{{ None }}', 'None'],
  ['{{ yes }} {{ no }}', 'True False'],
  ["{{ d.k }} {{ d['k'] }} {{ missing }}", 'v v '],
  ['{{- a -}}', 'Ann'],
  ['{% if nothing is none %}none{% endif %}', 'none'],
  ['{% set s = "%s!" % a %}{{ s }}', 'Ann!'],
  ['{{ "a" ~ "%s" % b }}', 'aBob'],
  ['{% raw %}{{ "%s" % a }}{% endraw %}', '{{ "%s" % a }}'],
  ['{# {{ "%s" % a }} #}x', 'x'],
  ["{{ \"}}\" }}{{ {'a': {'b': 1}}['a']['b'] }}", '}}1'],
  ['{% for i in [1, 2] %}{{ "%02d" % i }}{% if not loop.last %}, {% endif %}{% endfor %}', '01, 02'],
  ['{{ "%s" % (a if yes else b) }}', 'Ann'],
  ['{{ "%s" % a|upper }}', 'ANN'],
  ["{{ ('<i>%s</i>'|safe) }}", '<i>%s</i>'],
  ['{{ "5 > 3"|striptags }} {{ 12345678|filesizeformat }}', '5 &gt; 3 12.3 MB'],
  ['{{ "a b c"|wordcount }} {{ "x"|center(5) }}|', '3   x  |'],
  ['{{ "it\'s"|replace("\'", \'"\') }}', 'it&quot;s'],
  ['{{ "%s" % "<" }}', '&lt;'],
  ['{{ evil }}', '&lt;script&gt;&quot;x&quot; &amp; &#39;y&#39;/'],
  ['{{ evil|truncate(100) }}', '&lt;script&gt;&quot;x&quot; &amp; &#39;y&#39;/'],
  ['{{ "%c%%%i" % ("x", 3.7) }}', 'x%3'],
];

describe("the words of the field's templates", () => {
  it.each(rendered)('%s', (source, result) => {
    expect(sameEntities(render(source))).toBe(result);
  });

  it('keep their lines, and what is wrong with them', () => {
    expect(translate('a\n{{ "%s" %\n x }}\n{{ y }}').split('\n')).toHaveLength(4);
    for (const wrong of ['{{ "%s" % }}', '{{ (a }}', '{{ "unclosed }}', '{% if %}', '{{', '{% raw %}', '{# x'])
      expect(() => void translate(wrong)).not.toThrow();
    expect(() => render('fine\n{{ "%s" % }}')).toThrow(/page\.html:2/);
  });

  it.each(['page.html', 'page.htm', 'page.xml', 'page.HTML', 'page.Htm', 'PAGE.XML'])('are escaped in %s', (name) => {
    expect(sameEntities(render('{{ evil }}', name))).toBe('&lt;script&gt;&quot;x&quot; &amp; &#39;y&#39;/');
  });

  it.each(['mail.txt', 'script.js', 'style.css', 'data.json', 'data.yaml'])('are left as they are in %s', (name) => {
    expect(render('{{ evil }}', name)).toBe(values.evil);
  });

  it('are escaped by the name of the template that they stand in', () => {
    const base = ['base.HTML', '<b>{% block a %}{% endblock %}</b>{{ evil[:3] }}'] as const;
    const page = '{% extends "base.HTML" %}{% block a %}{{ evil[:3] }}{% include "x.js" %}{% endblock %}';
    expect(render(page, 'page.HTML', [base, ['x.js', '{{ evil[:3] }}']])).toBe('<b>&lt;sc<sc</b>&lt;sc');
  });

  it('take the finished HTML of messages as it is', () => {
    const set = new TemplateSet(
      new Map([
        ['a.html', '{% for message in messages %}{{ message.body_text_html }}{{message.body_text_plain}}{% endfor %}'],
      ]),
      {},
      { publicBaseUrl: '/' },
    );
    expect(set.render('a.html', { messages: [{ body_text_html: '<b>x</b>', body_text_plain: '<' }] })).toBe(
      '<b>x</b>&lt;',
    );
  });
});
