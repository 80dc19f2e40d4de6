/** A text that stands for itself in a pattern of `LIKE ? ESCAPE '\'`. */
export const likeText = (text: string): string => text.replace(/[\\%_]/g, (character) => `\\${character}`);
