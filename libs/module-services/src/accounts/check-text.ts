import { MatrixError } from '@rookery/matrix-types';

const longest = 255;

/** What modules give as a name of something. @throws MatrixError 400 `M_INVALID_PARAM` */
export function checkText(text: string, what: string): void {
  if (typeof text !== 'string' || text === '' || text.length > longest || text.includes('\0')) {
    throw MatrixError.invalidParam(`${what} is a text of 1 to ${longest} characters`);
  }
}
