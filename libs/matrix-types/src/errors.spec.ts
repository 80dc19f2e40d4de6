import { type ErrorRow, errorTable } from './error-table.js';
import { MatrixError } from './errors.js';

describe('named errors', () => {
  it('have status, code and text of their row', () => {
    expect(MatrixError.userInUse()).toMatchObject({
      ...{ status: 400, errcode: 'M_USER_IN_USE', message: 'This user name is already taken', extra: {} },
    });
    expect(MatrixError.notFound('There is no such filter').toBody()).toEqual({
      ...{ errcode: 'M_NOT_FOUND', error: 'There is no such filter' },
    });
    expect(MatrixError.forbidden('No')).toBeInstanceOf(MatrixError);
  });

  it('have the keys that their row always has, and those of the place', () => {
    expect(MatrixError.userLocked().toBody()).toMatchObject({ errcode: 'M_USER_LOCKED', soft_logout: true });
    expect(MatrixError.wrongRoomKeysVersion(undefined, { current_version: '2' }).toBody()).toEqual({
      ...{ errcode: 'M_WRONG_ROOM_KEYS_VERSION', error: 'This is not the current backup', current_version: '2' },
    });
  });

  it('say in whole milliseconds when to come again', () => {
    expect(MatrixError.limitExceeded(7.2).toBody()).toEqual({
      ...{ errcode: 'M_LIMIT_EXCEEDED', error: 'Too many requests', retry_after_ms: 8 },
    });
    expect(MatrixError.limitExceeded(1, 'Slower')).toMatchObject({ status: 429, message: 'Slower' });
  });

  it('are of classes of their own where a class extends MatrixError', () => {
    class Special extends MatrixError {
      constructor() {
        super(409, 'M_UNKNOWN', 'special');
      }
    }
    expect(MatrixError.is(new Special())).toBe(true);
    expect(MatrixError.conflict('taken')).not.toBeInstanceOf(Special);
  });

  it('differ in what they mean', () => {
    const rows = Object.values<ErrorRow>(errorTable);
    expect(new Set(rows.map(({ when }) => when)).size).toBe(rows.length);
    const said = rows.flatMap(({ text }) => text ?? []);
    expect(new Set(said).size).toBe(said.length);
    for (const { status } of rows) expect(status).toBeGreaterThanOrEqual(400);
  });
});
