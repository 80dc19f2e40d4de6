import { mailHtml, plainHtml } from './message-html.js';

describe('messages in mails', () => {
  it.each([
    ['<b>bold</b> &amp; <i>slanted</i>', '<b>bold</b> &amp; <i>slanted</i>'],
    ['<script>alert(1)</script>x<style>y{}</style>', 'x'],
    ['<img src=x onerror=alert(1)>text', 'text'],
    ['<b onclick="x()" style="a">b</b>', '<b>b</b>'],
    ['<a href="javascript:alert(1)">a</a>', '<a rel="noopener">a</a>'],
    ['<a href=" https://x.y/?a=1&b=2">a</a>', '<a href="https://x.y/?a=1&amp;b=2" rel="noopener">a</a>'],
    [
      '<a href="https://x.y/&quot;><script>">a</a>',
      '<a href="https://x.y/&quot;&gt;&lt;script&gt;" rel="noopener">a</a>',
    ],
    ['<font color="red" face="x">r</font><font color="url(x)">u</font>', '<font color="red">r</font><font>u</font>'],
    ['<b><i>crossed</b></i>', '<b><i>crossed</i></b>'],
    ['<ul><li>one<li>two</ul>', '<ul><li>one</li><li>two</li></ul>'],
    ['</div></td></table>out', 'out'],
    ['<mx-reply><blockquote>before</blockquote></mx-reply>after', 'after'],
    ['<!-- c --><unknown>kept</unknown><br>', 'kept<br>'],
    ['<b>unclosed', '<b>unclosed</b>'],
    ['1 < 2 &lt;script&gt;', '1 &lt; 2 &lt;script&gt;'],
  ])('%s', async (formatted, expected) => {
    expect(await mailHtml(formatted)).toBe(expected);
  });

  it('a message that is too long has none, one nested too deeply is cut', async () => {
    expect(await mailHtml('x'.repeat(20_001))).toBeUndefined();
    const deep = await mailHtml(`${'<div>'.repeat(3_000)}x`);
    expect(deep?.match(/<div>/g)).toHaveLength(50);
    expect(deep?.match(/<\/div>/g)).toHaveLength(50);
  });

  it('keep their lines where they have no marks', () => {
    expect(plainHtml('a <b>\r\n"c" & d')).toBe('a &lt;b&gt;<br>\n&quot;c&quot; &amp; d');
  });
});
