import { emptyToken, formatSyncToken, parseSyncToken } from './sync-token.js';

describe('sync tokens', () => {
  it('come back as they went', () => {
    const token = { ...emptyToken, events: 12, receipts: 9_007_199_254_740_991, deviceLists: 3 };
    expect(parseSyncToken(formatSyncToken(token))).toEqual(token);
  });

  it('of a release with fewer streams stay valid', () => {
    expect(parseSyncToken('s5_1')).toEqual({ ...emptyToken, events: 5, presence: 1 });
    expect(parseSyncToken('s5')).toEqual({ ...emptyToken, events: 5 });
  });

  it.each(['', 's', 'x5', 's-5', 's5_', 's5__1', 's1.5', 't5-5', 's99999999999999999', `s1${'_1'.repeat(16)}`])(
    '%j is refused',
    (text) => {
      expect(() => parseSyncToken(text)).toThrow(expect.objectContaining({ status: 400, errcode: 'M_INVALID_PARAM' }));
    },
  );
});
