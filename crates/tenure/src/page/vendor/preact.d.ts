// What `preact.js` offers, as far as the page uses it. Ours, for the checker of types alone; it is not served.

type Ref<T> = { current: T };
export const html: (strings: TemplateStringsArray, ...values: any[]) => any;
export class Component {
  state: any;
  props: any;
  setState(next: any): void;
}
export function render(what: any, where: Element): void;
export function useState<T>(first: T | (() => T)): [T, (next: T | ((old: T) => T)) => void];
export function useReducer<T>(reduce: (old: T, action: any) => T, first: T): [T, (action: any) => void];
export function useEffect(effect: () => void | (() => void), inputs?: any[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: any[]): void;
export function useRef<T>(first: T): Ref<T>;
export function useMemo<T>(make: () => T, inputs: any[]): T;
export function useCallback<T extends Function>(call: T, inputs: any[]): T;
