import { FakeClock } from '@rookery/testing';
import { ServiceMetadata } from './service-metadata.js';

describe('ServiceMetadata', () => {
  const make = () => {
    const clock = new FakeClock();
    const asked: { readonly tell: (value: string) => void; readonly fail: () => void }[] = [];
    const metadata = new ServiceMetadata(
      clock,
      3_600_000,
      () => new Promise<string>((tell, reject) => asked.push({ tell, fail: () => reject(new Error('away')) })),
    );
    const told = async (tell: 'fail' | string): Promise<string[]> => {
      const wanted = [1, 2, 3].map(() => metadata.get().catch(({ message }: Error) => message));
      if (tell === 'fail') asked.at(-1)!.fail();
      else asked.at(-1)!.tell(tell);
      return [...new Set(await Promise.all(wanted))];
    };
    return { clock, asked, told };
  };

  it('are fetched once by all who want them, and again after an hour', async () => {
    const { clock, asked, told } = make();
    expect(await told('one')).toEqual(['one']);
    await clock.advance(3_599_999);
    expect(await told('')).toEqual(['one']);
    expect(asked).toHaveLength(1);
    await clock.advance(1);
    expect(await told('two')).toEqual(['two']);
    expect(asked).toHaveLength(2);
  });

  it('go on where they cannot be had, and nobody asks for a minute', async () => {
    const { clock, asked, told } = make();
    await told('one');
    await clock.advance(3_600_000);
    expect(await told('fail')).toEqual(['one']);
    await clock.advance(59_999);
    expect(await told('')).toEqual(['one']);
    expect(asked).toHaveLength(2);
    await clock.advance(1);
    expect(await told('two')).toEqual(['two']);
    expect(asked).toHaveLength(3);
  });

  it('are not asked for again at once where there are none', async () => {
    const { clock, asked, told } = make();
    expect(await told('fail')).toEqual(['away']);
    await clock.advance(4_999);
    expect(await told('')).toEqual(['away']);
    expect(asked).toHaveLength(1);
    await clock.advance(1);
    expect(await told('one')).toEqual(['one']);
  });
});
