import type { ParserOptions } from 'htmlparser2';

/** What may stand in a mail, as the field's mails have it. */
const tags = new Set(
  `font del h3 h4 h5 h6 blockquote p a ul ol nl li b i u strong em strike code hr br div table thead caption tbody tr th td pre`.split(
    ' ',
  ),
);
const withoutEnd = new Set(['hr', 'br']);
/** Elements that go with all that is in them. A reply's quotation is one: the mail shows the message before. */
const dropped = new Set(['script', 'style', 'title', 'textarea', 'iframe', 'noscript', 'svg', 'math', 'mx-reply']);
const maxDepth = 50;
/** Longest formatted body that is looked at, characters. */
const maxFormatted = 20_000;
const safeLink = /^(?:https?|ftp|mailto):/i;
const color = /^(?:#[0-9a-f]{3,8}|[a-z]{1,30})$/i;
const name = /^[\w-]{1,100}$/;
const parserOptions: ParserOptions = { decodeEntities: true, lowerCaseTags: true, lowerCaseAttributeNames: true };

const escapeHtml = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');

/** A text without marks, as HTML. */
export const plainHtml = (body: string): string => escapeHtml(body).replace(/\r\n?|\n/g, '<br>\n');

function attributesOf(tag: string, given: Readonly<Record<string, string>>): string {
  const { href, target, name: anchor, color: shade } = given;
  const kept: [string, string | undefined][] =
    tag === 'a'
      ? [
          ['href', href !== undefined && safeLink.test(href.trim()) ? href.trim() : undefined],
          ['name', anchor !== undefined && name.test(anchor) ? anchor : undefined],
          ['target', target === '_blank' ? target : undefined],
          ['rel', 'noopener'],
        ]
      : tag === 'font'
        ? [['color', shade !== undefined && color.test(shade) ? shade : undefined]]
        : [];
  return kept.map(([key, value]) => (value === undefined ? '' : ` ${key}="${escapeHtml(value)}"`)).join('');
}

/**
 * The formatted body of a message as it may stand in a mail: marks that are known, links that lead where mails may lead, and
 * every element closed. `undefined` for one that is too long to be looked at.
 */
export async function mailHtml(formatted: string): Promise<string | undefined> {
  if (formatted.length > maxFormatted) return undefined;
  // Loaded with the first mail that needs it.
  const { Parser } = await import('htmlparser2');
  let result = '';
  let hidden = 0;
  const open: string[] = [];
  const parser = new Parser(
    {
      onopentag: (tag, attributes) => {
        if (dropped.has(tag)) hidden += 1;
        if (hidden > 0 || !tags.has(tag) || open.length >= maxDepth) return;
        result += `<${tag}${attributesOf(tag, attributes)}>`;
        if (!withoutEnd.has(tag)) open.push(tag);
      },
      onclosetag: (tag) => {
        if (dropped.has(tag)) hidden = Math.max(0, hidden - 1);
        const at = hidden > 0 ? -1 : open.lastIndexOf(tag);
        if (at < 0) return;
        for (const one of open.splice(at).reverse()) result += `</${one}>`;
      },
      ontext: (text) => {
        if (hidden === 0) result += escapeHtml(text);
      },
    },
    parserOptions,
  );
  parser.end(formatted);
  for (const one of open.reverse()) result += `</${one}>`;
  return result;
}
