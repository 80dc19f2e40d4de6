import fc from 'fast-check';
import { readCasResponse } from './cas-response.js';

const wrap = (inside: string): string =>
  `<cas:serviceResponse xmlns:cas="http://www.yale.edu/tp/cas">${inside}</cas:serviceResponse>`;

it('reads whom the server vouches for', () => {
  expect(
    readCasResponse(
      wrap(`<cas:authenticationSuccess>
        <cas:user>0123</cas:user>
        <cas:attributes><cas:group>a</cas:group><cas:group>b &amp; c</cas:group><cas:n>1.0</cas:n><cas:e/></cas:attributes>
      </cas:authenticationSuccess>`),
    ),
  ).toEqual({ user: '0123', attributes: { group: ['a', 'b & c'], n: ['1.0'], e: [''] } });
});

it('reads why it does not', () => {
  expect(
    readCasResponse(wrap('<cas:authenticationFailure code="INVALID_TICKET">no &lt;b&gt;</cas:authenticationFailure>')),
  ).toEqual({ code: 'INVALID_TICKET', description: 'no <b>' });
  // Both at once is a failure.
  const both = '<cas:authenticationSuccess><cas:user>a</cas:user></cas:authenticationSuccess>';
  expect(readCasResponse(wrap(`${both}<cas:authenticationFailure code="X"/>`))).toMatchObject({ code: 'X' });
});

it.each([
  '',
  'yes\nanna\n',
  '{"user":"anna"}',
  '<a/>',
  wrap(''),
  wrap('<cas:authenticationSuccess/>'),
  wrap('<cas:authenticationSuccess><cas:user/></cas:authenticationSuccess>'),
  wrap('<cas:authenticationSuccess><cas:user>a</cas:user><cas:user>b</cas:user></cas:authenticationSuccess>'),
  wrap('<cas:authenticationSuccess><cas:user><b>a</b></cas:user></cas:authenticationSuccess>'),
  `<!DOCTYPE x>${wrap('<cas:authenticationSuccess><cas:user>a</cas:user></cas:authenticationSuccess>')}`,
  wrap('<cas:authenticationSuccess><cas:user>a</cas:authenticationSuccess>'),
  '<x>'.repeat(5_000),
])('reads nobody from %j', (xml) => {
  expect(readCasResponse(xml)).toBeUndefined();
});

it('throws at nothing', () => {
  const piece = fc.constantFrom(
    '<cas:user>',
    '</cas:user>',
    '<cas:authenticationSuccess>',
    '</cas:authenticationSuccess>',
    '<cas:attributes>',
    '</cas:attributes>',
    '<__proto__>',
    '</__proto__>',
    '<![CDATA[x]]>',
    '<!--',
    '-->',
    '&#x41;',
    '&amp;',
    'a',
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 30 }), (pieces) => {
      readCasResponse(wrap(pieces.join('')));
    }),
    { numRuns: 300 },
  );
  expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
});
