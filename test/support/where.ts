/** `it` for what not every machine can do: where this one cannot, the test is skipped, and its name says why. */
export const itWhere =
  (isPossible: boolean, why: string) =>
  (name: string, check: jest.ProvidesCallback): void => {
    if (isPossible) it(name, check);
    else it.skip(`${name} (not run: ${why})`, check);
  };
